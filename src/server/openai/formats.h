#pragma once

#include <memory>

#include "server/openai/answer.h"
#include "tokenizer/tokenizer.h"

// The three forms of an answer. The tokenizer must outlive the format.
namespace winnow::server {

// POST /v1/chat/completions.
std::unique_ptr<const AnswerFormat> ChatFormat(const tokenizer::Tokenizer& tokenizer);
// POST /v1/completions; with `echo` the prompt comes first.
std::unique_ptr<const AnswerFormat> TextFormat(const tokenizer::Tokenizer& tokenizer, bool echo);
// POST /completion of llama-server; with `return_tokens` the token ids too.
std::unique_ptr<const AnswerFormat> NativeFormat(const tokenizer::Tokenizer& tokenizer,
                                                 bool return_tokens);

}  // namespace winnow::server
