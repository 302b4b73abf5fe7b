#include "eval/workloads/window.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log_sum_exp.h"
#include "eval/metrics/kl_divergence.h"
#include "eval/run/equal_bytes.h"
#include "eval/run/stream.h"
#include "eval/run/text_windows.h"
#include "runtime/generate/score.h"

namespace winnow::eval {
namespace {

using runtime::Session;

// The logits after the tokens of a window, row by row from the middle on, as one session computes
// them. Rows are copies, because two sessions use the engine's one set of buffers in turn.
class Rows {
 public:
  // The session may already hold the first of the tokens, with logits.
  Rows(std::unique_ptr<Session> session, std::span<const TokenId> tokens)
      : session_(std::move(session)), tokens_(tokens) {
    if (session_->n_tokens() > 0) Keep(session_->n_tokens() - 1, session_->logits());
  }

  const Session& session() const { return *session_; }

  // The logits after token `row`, which predict the next one. Rows are asked for in ascending
  // order.
  Result<std::span<const float>> Row(int64_t row) {
    WINNOW_CHECK(row >= first_row_);
    const auto& compression = session_->compression();
    while (row >= session_->n_tokens()) {
      if (compression.method && session_->n_tokens() > 0) {
        WINNOW_TRY(session_->Decode(tokens_[static_cast<size_t>(session_->n_tokens())]));
        Keep(session_->n_tokens() - 1, session_->logits());
      } else {
        WINNOW_TRY(Read(row));
      }
    }
    const size_t vocabulary = session_->logits().size();
    return std::span<const float>(rows_).subspan(static_cast<size_t>(row - first_row_) * vocabulary,
                                                 vocabulary);
  }

 private:
  static constexpr int64_t kBlock = 64;  // tokens

  void Keep(int64_t first_row, std::span<const float> logits) {
    first_row_ = first_row;
    rows_.assign(logits.begin(), logits.end());
  }

  // Reads the prompt, up to `row`, at once and then, without a method, blocks, which lose nothing.
  // With a prefill chunk, reads all of the window and holds the logits of its second half.
  Result<void> Read(int64_t row) {
    const auto& compression = session_->compression();
    const int64_t begin = session_->n_tokens();
    const int64_t left = static_cast<int64_t>(tokens_.size()) - begin;
    int64_t n = row - begin + 1;
    if (!compression.method && begin > 0) n = std::min(left, kBlock);
    if (compression.prefill_chunk > 0) n = left;
    Keep(std::max(begin, row), {});
    Session::PrefillOptions options;
    options.logits_from = first_row_ - begin;
    options.on_logits = [&](int64_t, std::span<const float> logits) {
      rows_.insert(rows_.end(), logits.begin(), logits.end());
    };
    WINNOW_TRY(session_->Prefill(
        tokens_.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)), options));
    return {};
  }

  std::unique_ptr<Session> session_;
  std::span<const TokenId> tokens_;
  int64_t first_row_ = 0;
  std::vector<float> rows_;  // [row - first_row_, vocabulary]
};

// A session that continues this one. If the method decides nothing more, it is a copy without a
// method, which can read many tokens at a time. Error: memory refused.
Result<std::unique_ptr<Session>> InBlocks(std::unique_ptr<Session> session) {
  const runtime::CompressionOptions& compression = session->compression();
  if (!compression.method || compression.memory_bytes > 0) return session;
  const compression::Traits& traits = compression.method->traits();
  if (traits.decisions.evicts_in_decode || traits.attention != compression::AttentionPolicy{}) {
    return session;
  }
  return session->ForkWithoutMethod();
}

class WindowWorkload final : public Workload {
 public:
  explicit WindowWorkload(Window window) : window_(std::move(window)) {}

  uint64_t fingerprint() const override {
    Fingerprint all;
    all.Add(window_.tokens)
        .Add(static_cast<int64_t>(window_.mode))
        .Add(window_.score_from)
        .Add(window_.every)
        .Add(window_.against_full ? 1 : 0)
        .Add("bytes after the prompt");
    if (window_.text.open) {
      all.Add(window_.text.n_tokens).Add(static_cast<int64_t>(window_.text.hash));
    }
    return all.value();
  }

  bool against_full() const override { return window_.against_full; }

  Result<Outcome> Run(const RunContext& run_context) override {
    const runtime::CompressionOptions& compression = run_context.options.compression;
    // The first half is the prompt. Streams have no prompt and no budget at equal bytes.
    const auto n_prompt = std::min(window_.tokens.size(), static_cast<size_t>(FirstScored()));
    const auto prompt = std::span(window_.tokens).first(n_prompt);
    if (window_.against_full && compression.prefill_chunk == 0) {
      WINNOW_ASSIGN(auto session, ReadPrompt(run_context, prompt, kReading));
      if (!session) return Outcome{.stopped = true};
      return AgainstFull(run_context, std::move(session));
    }
    WINNOW_ASSIGN(const auto options, OptionsFor(run_context, prompt));
    if (!options) return Outcome{.stopped = true};
    WINNOW_ASSIGN(auto session, Session::Make(run_context.engine, *options));
    if (window_.mode == Window::Mode::kStream) return Stream(run_context, *session);
    return window_.against_full ? AgainstFull(run_context, std::move(session))
                                : Halves(run_context, *session);
  }

 private:
  Result<Outcome> Stream(const RunContext& run_context, Session& session) const {
    Outcome outcome;
    report::List points;
    bool going = true;
    StreamOptions options;
    options.score_from = window_.score_from;
    if (window_.every > 0) {
      options.every = window_.every;
      options.on_point = [&](const StreamPoint& point) {
        report::Record record = {{"tokens", point.n_tokens},
                                 {"nll", point.nll.mean()},
                                 {"recent_nll", point.recent_nll},
                                 {"cache_bytes", session.cache_bytes()},
                                 {"cache_bytes_with_lists", session.cache_bytes_with_lists()}};
        if (run_context.on_point) run_context.on_point(record);
        points.emplace_back(std::move(record));
      };
    }
    options.progress = [&](double done) { return going = run_context.KeepGoing(done); };
    const StreamReader reader = ReaderFrom(session, options.every);
    auto scored = window_.text.open
                      ? ScoreStream(reader, window_.text.open(), window_.text.n_tokens, options)
                      : ScoreStream(reader, window_.tokens, options);
    WINNOW_ASSIGN(const StreamPoint end, std::move(scored));
    if (!going) return Outcome{.stopped = true};
    const auto n = static_cast<double>(end.nll.count());
    outcome.scores = {{"nll", end.nll.mean(), n}};
    MeasureCache(session, outcome);
    outcome.details = {{"tokens", end.n_tokens}, {"tokens_scored", end.nll.count()}};
    if (window_.every > 0) outcome.details.Add("points", std::move(points));
    return outcome;
  }

  int64_t FirstScored() const {
    return TextWindows::FirstScored(static_cast<int64_t>(window_.tokens.size()));
  }

  Result<Outcome> Halves(const RunContext& run_context, Session& session) const {
    const int64_t first = FirstScored();
    const bool decodes = session.compression().prefill_chunk == 0;
    Outcome outcome;
    MeanEstimate nll;
    runtime::ScoreOptions options = {.first = first, .n_prompt = decodes ? first : -1};
    options.on_prompt = [&] { MeasureCache(session, outcome); };
    options.on_rows = [&](const runtime::LogitRows& rows) {
      for (const double log_probability : rows.log_probabilities) nll.Add(-log_probability);
    };
    options.progress = run_context.keep_going;
    WINNOW_ASSIGN(const bool finished, runtime::Score(session, window_.tokens, options));
    if (!finished) return Outcome{.stopped = true};
    outcome.scores = {{"nll", nll.mean(), static_cast<double>(nll.count())}};
    outcome.details = {{"tokens", session.n_tokens()}, {"tokens_scored", nll.count()}};
    return outcome;
  }

  Result<Outcome> AgainstFull(const RunContext& run_context, std::unique_ptr<Session> session) {
    Outcome outcome;
    const bool has_prompt = session->n_tokens() > 0;
    if (has_prompt) {
      MeasureCache(*session, outcome);
      WINNOW_ASSIGN(session, InBlocks(std::move(session)));
    }
    Rows own(std::move(session), window_.tokens);
    const auto n_tokens = static_cast<int64_t>(window_.tokens.size());
    std::optional<Rows> full;
    KlDivergence divergence;
    for (int64_t row = FirstScored() - 1; row + 1 < n_tokens; ++row) {
      WINNOW_ASSIGN(const auto base, FullLogProbs(run_context, row, full));
      WINNOW_ASSIGN(const auto logits, own.Row(row));
      if (!has_prompt && divergence.kld().count() == 0) MeasureCache(own.session(), outcome);
      divergence.Add(
          RowComparison::Make(logits, base, window_.tokens[static_cast<size_t>(row) + 1]));
      const double done = static_cast<double>(row) / static_cast<double>(n_tokens);
      if (!run_context.KeepGoing(kReading + (1 - kReading) * done)) {
        return Outcome{.stopped = true};
      }
    }
    const auto n = static_cast<double>(divergence.kld().count());
    outcome.scores = {{"nll", divergence.nll().mean(), n},
                      {"kld", divergence.kld().mean(), n},
                      {"same_top", divergence.same_top().mean(), n},
                      {"p_difference", divergence.p_difference().mean(), n}};
    outcome.details = {{"tokens", own.session().n_tokens()},
                       {"tokens_scored", divergence.kld().count()},
                       {"max_kld", Percentile(divergence.SortedKlds(), 1)}};
    return outcome;
  }

  // The full cache's log-probabilities after row `row`, valid until the next call. `full` computes
  // rows that are not remembered.
  Result<std::span<const float>> FullLogProbs(const RunContext& run_context, int64_t row,
                                              std::optional<Rows>& full) {
    const auto vocabulary =
        static_cast<size_t>(run_context.engine.model().hyperparameters().vocabulary);
    const size_t at = static_cast<size_t>(row - FirstScored() + 1) * vocabulary;
    if (at < full_.size()) return std::span<const float>(full_).subspan(at, vocabulary);
    if (!full) {
      WINNOW_ASSIGN(auto session, Session::Make(run_context.engine, run_context.full_options));
      full.emplace(std::move(session), window_.tokens);
    }
    WINNOW_ASSIGN(const auto logits, full->Row(row));
    // Without memory for all rows, every variant computes them again.
    const bool remembers =
        window_.tokens.size() * vocabulary * sizeof(float) <= kMaxRemembered && at == full_.size();
    if (remembers) {
      full_.resize(at + vocabulary);
    } else {
      full_row_.resize(vocabulary);
    }
    const auto log_probs = remembers ? std::span(full_).subspan(at) : std::span(full_row_);
    LogSoftmax(logits, log_probs);
    return std::span<const float>(log_probs);
  }

  static constexpr double kReading = 0.5;                    // reading's share of the work
  static constexpr size_t kMaxRemembered = size_t{1} << 28;  // bytes of full_

  Window window_;
  std::vector<float> full_;  // [scored row, vocabulary] log-probabilities of the full cache
  std::vector<float> full_row_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Window window) {
  return std::make_unique<WindowWorkload>(std::move(window));
}

}  // namespace winnow::eval
