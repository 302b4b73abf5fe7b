#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "eval/metrics/statistics.h"
#include "runtime/session.h"

namespace winnow::eval {

using tokenizer::TokenId;

// How llama-perplexity cuts a text: windows of `window` tokens, one after the other, what is left
// at the end dropped; the first token of each replaced by BOS where the model wants one; the tokens
// of the second half scored, each from all before it in its window.
struct Windows {
  std::vector<TokenId> tokens;  // [n_windows * window], as they are fed
  int64_t window = 0;
  int64_t n_windows = 0;

  // The row whose logits predict the first scored token.
  int64_t first_row() const { return window / 2; }
  int64_t n_scored() const { return window - 1 - first_row(); }  // per window
  std::span<const TokenId> Tokens(int64_t index) const;
};

// max_windows < 0: all. A text shorter than `window` becomes one window of its own length.
// Errors: fewer than four tokens; window below 4.
Result<Windows> CutWindows(std::span<const TokenId> text, int64_t window, int64_t max_windows,
                           const tokenizer::Tokenizer& tokenizer);

// Some rows of one window whose logits have just been computed.
struct LogitsBlock {
  int64_t window = 0;
  int64_t first_row = 0;
  std::span<const float> logits;  // [rows, vocabulary]
  std::span<const TokenId>
      next;  // [rows], what comes after each; the last row of a window has none: -1
  std::span<const double> nll;  // [rows], -log p(next); 0 where there is none
  int64_t n_rows() const { return static_cast<int64_t>(next.size()); }
  std::span<const float> Row(int64_t row) const {
    const size_t vocabulary = logits.size() / next.size();
    return logits.subspan(static_cast<size_t>(row) * vocabulary, vocabulary);
  }
};

struct PerplexityOptions {
  bool all_rows = false;  // on_block sees every row of a window, not only those that are scored
  std::function<Result<void>(const LogitsBlock& block)> on_block;
  // After each window: windows done and the perplexity so far.
  std::function<void(int64_t n_done, double perplexity)> on_window;
  std::function<bool(double done)> progress;  // share of the whole work; false stops
};

struct PerplexityEstimate {
  MeanEstimate nll;  // negative log-likelihood of a token, in nats
  bool stopped = false;
  double perplexity() const;
  double standard_error() const;  // of the perplexity
};

// Under a compression method the first half of a window is the prompt, and the scored tokens are
// decoded one by one, each from what the method kept. With a prefill chunk the whole window is read
// in chunks instead, and a token sees its own chunk and what was kept of those before.
// Errors: those of the session and of on_block.
Result<PerplexityEstimate> MeasurePerplexity(runtime::Session& session, const Windows& windows,
                                             const PerplexityOptions& options);

}  // namespace winnow::eval
