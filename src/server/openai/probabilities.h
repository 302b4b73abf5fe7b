#pragma once

#include <array>
#include <string>
#include <string_view>

#include "report/record.h"
#include "server/openai/answer.h"
#include "tokenizer/tokenizer.h"

// Log-probabilities of a token in the three shapes clients know. Impossible tokens (-inf, which
// JSON lacks) have -9999, as OpenAI writes it.
namespace winnow::server {

// Chat: {"token", "logprob", "bytes", "top_logprobs"}.
report::Record ChatProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token);
// Text completions: an item of each of the lists; the token's text begins at `offset` characters.
constexpr std::array kTextProbabilities = {"tokens", "token_logprobs", "top_logprobs",
                                           "text_offset"};
std::array<report::Value, kTextProbabilities.size()> TextProbability(
    const tokenizer::Tokenizer& tokenizer, const DrawnToken& token, int64_t offset);
// llama-server: {"id", "token", "bytes", "logprob", "top_logprobs"}.
report::Record NativeProbability(const tokenizer::Tokenizer& tokenizer, const DrawnToken& token);

// Characters of the token's text.
int64_t CountCharacters(const tokenizer::Tokenizer& tokenizer, runtime::TokenId token);

// JSON that is written piece by piece. An item behind those of a list that has no end yet; "": it
// has none, nor its beginning.
void AppendItem(std::string& list, std::string_view json);
std::string ListFrom(std::string_view items);  // with its end
// A field behind those of an object that has some.
void AppendField(std::string& object, std::string_view name, std::string_view json);

}  // namespace winnow::server
