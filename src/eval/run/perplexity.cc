#include "eval/run/perplexity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/check.h"

namespace winnow::eval {
namespace {

constexpr int64_t kMinWindow = 4;

// The rows of one window as the session hands them out.
class WindowScorer {
 public:
  WindowScorer(const Windows& windows, int64_t window, ThreadPool& pool,
               const PerplexityOptions& options, MeanEstimate& nll)
      : windows_(windows), window_(window), pool_(pool), options_(options), nll_(nll) {}

  void Take(int64_t first_row, std::span<const float> logits, size_t vocabulary) {
    const int64_t n_rows = static_cast<int64_t>(logits.size() / vocabulary);
    const std::span<const TokenId> tokens = windows_.Tokens(window_);
    next_.assign(static_cast<size_t>(n_rows), -1);
    row_nll_.assign(static_cast<size_t>(n_rows), 0.0);
    for (int64_t row = 0; row < n_rows; ++row) {
      const size_t at = static_cast<size_t>(first_row + row) + 1;
      if (at < tokens.size()) next_[static_cast<size_t>(row)] = tokens[at];
    }
    const LogitsBlock block{window_, first_row, logits, next_, row_nll_};
    pool_.ParallelFor(n_rows, [&](int64_t row, int) {
      const TokenId next = next_[static_cast<size_t>(row)];
      if (next < 0) return;
      const std::span<const float> row_logits = block.Row(row);
      row_nll_[static_cast<size_t>(row)] =
          LogSumExp(row_logits) - row_logits[static_cast<size_t>(next)];
    });
    for (int64_t row = 0; row < n_rows; ++row) {
      const bool scored = first_row + row >= windows_.first_row();
      if (scored && next_[static_cast<size_t>(row)] >= 0)
        nll_.Add(row_nll_[static_cast<size_t>(row)]);
    }
    if (options_.on_block && status_) status_ = options_.on_block(block);
  }
  const Result<void>& status() const { return status_; }

 private:
  const Windows& windows_;
  int64_t window_;
  ThreadPool& pool_;
  const PerplexityOptions& options_;
  MeanEstimate& nll_;
  std::vector<TokenId> next_;
  std::vector<double> row_nll_;
  Result<void> status_;
};

}  // namespace

std::span<const TokenId> Windows::Tokens(int64_t index) const {
  return std::span(tokens).subspan(static_cast<size_t>(index * window),
                                   static_cast<size_t>(window));
}

Result<Windows> CutWindows(std::span<const TokenId> text, int64_t window, int64_t max_windows,
                           const tokenizer::Tokenizer& tokenizer) {
  const int64_t n_tokens = static_cast<int64_t>(text.size());
  if (window < kMinWindow) {
    return Error{"a window of " + std::to_string(window) +
                 " tokens leaves nothing to score, expected at least " +
                 std::to_string(kMinWindow)};
  }
  if (n_tokens <= 1) {
    return Error{"there is no text to score: give one with -f FILE, -p TEXT or through a pipe"};
  }
  if (n_tokens < kMinWindow) {
    return Error{"the text has " + std::to_string(n_tokens) + " tokens, expected at least " +
                 std::to_string(kMinWindow)};
  }
  Windows windows;
  windows.window = std::min(window, n_tokens);
  windows.n_windows = n_tokens / windows.window;
  if (max_windows >= 0) windows.n_windows = std::min(windows.n_windows, max_windows);
  windows.tokens.assign(text.begin(), text.begin() + windows.n_windows * windows.window);
  if (tokenizer.adds_bos() && tokenizer.bos()) {
    for (int64_t i = 0; i < windows.n_windows; ++i) {
      windows.tokens[static_cast<size_t>(i * windows.window)] = *tokenizer.bos();
    }
  }
  return windows;
}

double PerplexityEstimate::perplexity() const { return std::exp(nll.mean()); }
double PerplexityEstimate::standard_error() const { return perplexity() * nll.standard_error(); }

Result<PerplexityEstimate> MeasurePerplexity(runtime::Session& session, const Windows& windows,
                                             const PerplexityOptions& options) {
  const size_t vocabulary =
      static_cast<size_t>(session.engine().model().hyperparameters().vocabulary);
  PerplexityEstimate estimate;
  for (int64_t window = 0; window < windows.n_windows; ++window) {
    WindowScorer scorer(windows, window, session.engine().pool(), options, estimate.nll);
    session.Reset();
    runtime::Session::PrefillOptions prefill;
    prefill.logits_from = options.all_rows ? 0 : windows.first_row();
    prefill.on_logits = [&](int64_t first_row, std::span<const float> logits) {
      scorer.Take(first_row, logits, vocabulary);
    };
    if (options.progress) {
      prefill.progress = [&](double done) {
        return options.progress((static_cast<double>(window) + done) /
                                static_cast<double>(windows.n_windows));
      };
    }
    const std::span<const TokenId> tokens = windows.Tokens(window);
    const runtime::CompressionOptions& compression = session.compression();
    const bool decodes = compression.method && compression.prefill_chunk == 0;
    const int64_t n_prompt = decodes ? windows.first_row() + 1 : windows.window;
    WINNOW_ASSIGN(bool finished,
                  session.Prefill(tokens.first(static_cast<size_t>(n_prompt)), prefill));
    for (int64_t row = n_prompt; finished && scorer.status() && row < windows.window; ++row) {
      WINNOW_TRY(session.Decode(tokens[static_cast<size_t>(row)]));
      scorer.Take(row, session.logits(), vocabulary);
      if (prefill.progress) {
        finished = prefill.progress(static_cast<double>(row) / static_cast<double>(windows.window));
      }
    }
    WINNOW_TRY(scorer.status());
    if (!finished) {
      estimate.stopped = true;
      return estimate;
    }
    if (options.on_window) options.on_window(window + 1, estimate.perplexity());
  }
  return estimate;
}

}  // namespace winnow::eval
