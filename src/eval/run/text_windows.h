#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

using tokenizer::TokenId;

// Cuts a text as llama-perplexity does: consecutive windows of `window` tokens, the remainder
// dropped; the first token of each window replaced by BOS if the model wants one; the tokens of the
// second half scored, each given all tokens before it in its window.
struct TextWindows {
  std::vector<TokenId> tokens;  // [n_windows * window], as they are fed
  int64_t window = 0;
  int64_t n_windows = 0;

  // The first scored token of a window of n tokens. Under a compression method, the tokens before
  // it are the prompt.
  static int64_t FirstScored(int64_t n) { return n / 2 + 1; }
  int64_t first_scored() const { return FirstScored(window); }
  std::span<const TokenId> Tokens(int64_t index) const;
};

// max_windows < 0: all. A text shorter than `window` becomes one window of its own length. `bos`:
// set if the model wants one. Errors: fewer than four tokens; window below 4.
Result<TextWindows> CutWindows(std::span<const TokenId> text, int64_t window, int64_t max_windows,
                               std::optional<TokenId> bos);

}  // namespace winnow::eval
