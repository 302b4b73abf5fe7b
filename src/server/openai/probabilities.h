#pragma once

#include <span>

#include "report/record.h"
#include "server/openai/answer.h"
#include "tokenizer/tokenizer.h"

// Log-probabilities of tokens in the three shapes clients know. Impossible tokens (-inf, which JSON
// lacks) have -9999, as OpenAI writes it.
namespace winnow::server {

// Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal": null}.
report::Record ChatLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn);
// Text completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; the first token's
// text begins at `offset` characters.
report::Record TextLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn, int64_t offset);
// llama-server: [{"id", "token", "bytes", "logprob", "top_logprobs"}].
report::List NativeLogprobs(const tokenizer::Tokenizer& tokenizer,
                            std::span<const DrawnToken> drawn);

}  // namespace winnow::server
