#pragma once

#include <array>
#include <string>
#include <string_view>

#include "report/record.h"
#include "server/openai/answer.h"
#include "tokenizer/tokenizer.h"

// Log-probabilities of a token in the three forms that clients read. Impossible tokens (-inf, which
// JSON cannot express) get -9999, as OpenAI writes it.
namespace winnow::server {

// Chat: {"token", "logprob", "bytes", "top_logprobs"}.
report::Record ChatProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token);
// Text completions: one item for each list. The token's text begins at character `offset`.
constexpr std::array kTextProbabilities = {"tokens", "token_logprobs", "top_logprobs",
                                           "text_offset"};
std::array<report::Value, kTextProbabilities.size()> TextProbability(
    const tokenizer::Tokenizer& tokenizer, const DrawnToken& token, int64_t offset);
// llama-server: {"id", "token", "bytes", "logprob", "top_logprobs"}.
report::Record NativeProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token);

// Characters of the token's text.
int64_t CountCharacters(const tokenizer::Tokenizer& tokenizer, runtime::TokenId token);

// JSON written in pieces. Appends an item to a list without its closing bracket; "" is an empty
// list.
void AppendItem(std::string& list, std::string_view json);
std::string ListFrom(std::string_view items);  // adds the closing bracket
// Adds a field to an object that has at least one.
void AppendField(std::string& object, std::string_view name, std::string_view json);

}  // namespace winnow::server
