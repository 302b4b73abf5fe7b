// Prompts whose budget is searched (quality_search.h).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/budget/quality_search.h"
#include "runtime/session/prefill.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {
namespace {

// Shares of the work: done when the full cache was read; per budget that is tried; done when all
// were tried.
constexpr double kReadFull = 0.3;
constexpr double kTry = 0.15;
constexpr double kAllTried = 0.95;

// Trials do not call the caller's hooks.
SessionOptions TrialOptions(SessionOptions options) {
  options.compression.on_plan = {};
  options.compression.on_error_curve = {};
  options.on_projections = {};
  return options;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::CopyWithoutMethod(std::span<const TokenId> added) const {
  SessionOptions options = data_->options;
  options.compression = {};
  options.on_projections = {};
  WINNOW_ASSIGN(std::unique_ptr<Session> copy, ForkWith(options));
  copy->data_->Advance(added);
  copy->data_->has_logits = data_->has_logits || !added.empty();
  return copy;
}

Result<bool> Session::PrefillToQuality(std::span<const TokenId> tokens,
                                       const PrefillOptions& options) {
  const auto n = static_cast<int64_t>(tokens.size());
  WINNOW_TRY(QualitySearch::CheckRoom(n_tokens() + n, data_->cache->capacity()));
  const compression::Traits& traits = data_->options.compression.method->traits();
  Result<bool> read = traits.decisions.learns_for_all_budgets && data_->CallSize(n) == n
                          ? SearchBeforeDecision(tokens, options)
                          : SearchByReading(tokens, options);
  data_->compressor.SetNextBudget(0);  // if the prompt was refused, it is still set
  return read;
}

Result<QualitySearch> Session::BeginSearch(std::unique_ptr<Session> full,
                                           std::span<const TokenId> prompt) const {
  const CompressionOptions& compression = data_->options.compression;
  return QualitySearch::Begin(*full, prompt, compression.quality,
                              compression.method->traits().budget.min);
}

// The prompt is read once, and what the method learnt of it serves all budgets.
Result<bool> Session::SearchBeforeDecision(std::span<const TokenId> tokens,
                                           const PrefillOptions& options) {
  Data& data = *data_;
  const int64_t n_all = n_tokens() + static_cast<int64_t>(tokens.size());
  // Before the decision, any budget that makes the method evict will do.
  data.compressor.SetNextBudget(n_all - 1);
  runtime::Prefill prefill(data.engine->step());
  const runtime::Prefill::Prompt prompt = {.session = this,
                                           .tokens = tokens,
                                           .on_logits = options.on_logits,
                                           .logits_from = options.logits_from};
  prefill.Begin({&prompt, 1});
  const auto goes_on = [&](double done) { return !options.progress || options.progress(done); };
  if (!prefill.RunToDecision([&](double done) { return goes_on(done * kReadFull); })) return false;
  if (prefill.failure(0)) return *prefill.failure(0);
  WINNOW_ASSIGN(std::unique_ptr<Session> full, CopyWithoutMethod(tokens));
  WINNOW_ASSIGN(QualitySearch search, BeginSearch(std::move(full), tokens));
  while (const std::optional<int64_t> budget = search.next()) {
    if (!goes_on(std::min(kAllTried, kReadFull + kTry * search.n_tried()))) return false;
    WINNOW_ASSIGN(std::unique_ptr<Session> decided,
                  ForkDecided(*budget, tokens, TrialOptions(data.options)));
    WINNOW_ASSIGN(const std::unique_ptr<Session> compressed, decided->CopyWithoutMethod({}));
    decided.reset();
    WINNOW_TRY(search.Try(*compressed));
  }
  data.quality = search.found();
  const bool whole = data.quality->budget >= n_all;
  data.compressor.ChangeBudget(whole ? data.cache->capacity() : data.quality->budget);
  while (!prefill.Run()) {
  }
  if (prefill.failure(0)) return *prefill.failure(0);
  if (options.progress) options.progress(1);
  return true;
}

// The prompt is read anew for every budget.
Result<bool> Session::SearchByReading(std::span<const TokenId> tokens,
                                      const PrefillOptions& options) {
  Data& data = *data_;
  double begin = 0, share = kReadFull / 2;
  PrefillOptions reading;
  if (options.progress) {
    reading.progress = [&](double done) { return options.progress(begin + share * done); };
  }
  WINNOW_ASSIGN(std::unique_ptr<Session> full, CopyWithoutMethod({}));
  WINNOW_ASSIGN(const bool read, full->Prefill(tokens, reading));
  if (!read) return false;
  WINNOW_ASSIGN(QualitySearch search, BeginSearch(std::move(full), tokens));
  const SessionOptions trial_options = TrialOptions(data.options);
  while (const std::optional<int64_t> budget = search.next()) {
    begin = std::min(kAllTried - kTry, kReadFull / 2 + kTry * search.n_tried());
    share = kTry;
    WINNOW_ASSIGN(const std::unique_ptr<Session> trial, ForkWith(trial_options));
    trial->data_->compressor.SetNextBudget(*budget);
    WINNOW_ASSIGN(const bool compressed, trial->Prefill(tokens, reading));
    if (!compressed) return false;
    WINNOW_ASSIGN(const std::unique_ptr<Session> copy, trial->CopyWithoutMethod({}));
    WINNOW_TRY(search.Try(*copy));
  }
  const QualityFound found = search.found();
  const bool whole = found.budget >= n_tokens() + std::ssize(tokens);
  data.compressor.SetNextBudget(whole ? data.cache->capacity() : found.budget);
  begin = kAllTried;
  share = 1 - kAllTried;
  PrefillOptions last = options;
  last.progress = reading.progress;
  WINNOW_ASSIGN(const bool done, Prefill(tokens, last));
  if (done) data.quality = found;
  return done;
}

}  // namespace winnow::runtime
