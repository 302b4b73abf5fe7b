#include "runtime/generate/score.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/log_sum_exp.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {
namespace {

// Adds log-probabilities to the session's rows of logits and passes them on.
class RowScorer {
 public:
  RowScorer(ThreadPool& pool, std::span<const TokenId> tokens, const ScoreOptions& options)
      : pool_(pool), tokens_(tokens), options_(options) {}

  void Take(int64_t first, std::span<const float> logits, size_t vocabulary) {
    const std::span<const TokenId> next = tokens_.subspan(static_cast<size_t>(first) + 1);
    log_probabilities_.resize(std::min(logits.size() / vocabulary, next.size()));
    pool_.ParallelFor(std::ssize(log_probabilities_), [&](int64_t i, int) {
      const auto row = static_cast<size_t>(i);
      const auto of_row = logits.subspan(row * vocabulary, vocabulary);
      log_probabilities_[row] = of_row[static_cast<size_t>(next[row])] - LogSumExp(of_row);
    });
    options_.on_rows({first, logits, log_probabilities_});
  }

 private:
  ThreadPool& pool_;
  std::span<const TokenId> tokens_;
  const ScoreOptions& options_;
  std::vector<double> log_probabilities_;
};

// Checks that rows from `first` on of a prompt of n tokens are computed.
Result<void> CheckRows(const CompressionOptions& compression, int64_t first, int64_t n) {
  if (ScoresPrompts(compression) || first >= n - 1) return {};
  return Error{compression.method->traits().spec +
               " computes only some tokens of a prompt: the others have no score"};
}

}  // namespace

bool ScoresPrompts(const CompressionOptions& compression) {
  return !compression.method || compression.prefill_chunk == 1 ||
         compression.method->traits().rows == compression::RowPolicy::kAll;
}

Result<bool> Score(Session& session, std::span<const TokenId> tokens, const ScoreOptions& options) {
  const auto n = static_cast<int64_t>(tokens.size());
  WINNOW_CHECK(options.first >= 0 && options.first <= n && options.n_prompt <= n);
  const bool one_by_one = options.n_prompt >= 0 && session.compression().method != nullptr;
  const int64_t n_prompt = one_by_one ? options.n_prompt : n;
  const int64_t first_row = std::max<int64_t>(0, options.first - 1);
  WINNOW_TRY(CheckRows(session.compression(), first_row, n_prompt));
  const auto vocabulary =
      static_cast<size_t>(session.engine().model().hyperparameters().vocabulary);
  if (n > session.capacity() - session.n_tokens()) {
    return ContextFull(n, session.n_tokens(), session.capacity());
  }
  RowScorer scorer(session.engine().pool(), tokens, options);
  Session::PrefillOptions prefill;
  if (options.on_rows && first_row < n_prompt) {
    prefill.logits_from = first_row;
    prefill.on_logits = [&](int64_t row, std::span<const float> logits) {
      scorer.Take(row, logits, vocabulary);
    };
  }
  if (options.progress) {
    prefill.progress = [&](double done) {
      return options.progress(done * static_cast<double>(n_prompt) / static_cast<double>(n));
    };
  }
  WINNOW_ASSIGN(const bool finished,
                session.Prefill(tokens.first(static_cast<size_t>(n_prompt)), prefill));
  if (!finished) {
    session.InvalidateLogits();  // a part of the step may have overwritten them
    return false;
  }
  if (options.on_prompt) options.on_prompt();
  for (int64_t row = n_prompt; row < n; ++row) {
    WINNOW_TRY(session.Decode(tokens[static_cast<size_t>(row)]));
    if (options.on_rows && row >= first_row) scorer.Take(row, session.logits(), vocabulary);
    if (options.progress &&
        !options.progress(static_cast<double>(row + 1) / static_cast<double>(n))) {
      return row + 1 == n;
    }
  }
  return true;
}

}  // namespace winnow::runtime
