#include <algorithm>
#include <exception>
#include <string>

#include "base/check.h"
#include "runtime/session/prefill.h"
#include "runtime/session/session_data.h"

// How a session's tokens go through the model.
namespace winnow::runtime {

using compression::Phase;

namespace {

// Spare capacity for tokens, so that decode steps rarely allocate.
constexpr size_t kTokensAhead = 1024;

// With at most this many threads, one of them does a method's whole work after a generated token
// while the others go on, even if the method could share the work. Measured with two threads: takes
// 4 to 8 % off a step of methods that compare keys. With many threads, all the others would wait
// for that one.
constexpr int kFewThreads = 4;

}  // namespace

// The captures fit into std::function's own storage, so that a decode step allocates nothing.
model::TokenSpan Session::Data::BeginCall(std::span<const TokenId> added, Phase phase) {
  const auto n = static_cast<int64_t>(added.size());
  compressor.BeginCall(phase, n);
  cache->BeginCall(phase, n);
  model::TokenSpan span = {.sequence = {.cache = cache.get()},
                           .tokens = added,
                           .first_position = static_cast<cache::Position>(n_tokens()),
                           .last_logits = logits};
  if (options.on_projections) {
    span.sequence.on_projections = [this](const attention::Projections& projections) {
      options.on_projections(projections);
    };
  }
  if (!evicts()) return span;
  compressor.Ask(span.sequence);
  span.sequence.after_layer = [this](const attention::LayerDone& done) -> Result<void> {
    return compressor.AfterLayer(*cache, done);
  };
  const compression::Traits& traits = options.compression.method->traits();
  // One thread decides while the others go on: they do not wait, and it finds the data that
  // attention read in its caches.
  const int n_threads = engine->pool().n_threads();
  span.sequence.decides_on_one_thread =
      phase == Phase::kDecode && added.size() == 1 && n_threads > 1 &&
      (!traits.decisions.shares_threads || n_threads <= kFewThreads);
  if (traits.rows == compression::RowPolicy::kKept && phase == Phase::kPrefill) {
    span.rows_kept = [this](int) { return compressor.RowsKept(); };
  }
  span.sequence.n_attended = &n_attended;
  return span;
}

Result<void> Session::Data::EndCall(std::span<const TokenId> added, Phase phase) {
  has_logits = false;  // the step has overwritten the logits from before
  WINNOW_TRY(compressor.EndCall(*cache));
  has_logits = true;
  if (selects() && phase == Phase::kDecode) CountAttendable();
  Advance(added);
  return {};
}

void Session::Data::Rollback() {
  if (evicts()) {
    Clear();
  } else {
    cache->Truncate(static_cast<cache::Position>(n_tokens()));
    compressor.Truncate(n_tokens());
  }
}

void Session::Data::CountAttendable() {
  const int n_all = cache->config().shape.n_layers;
  const int n_layers = n_all - options.compression.method->traits().attention.dense_layers;
  n_attendable += int64_t{std::max(0, n_layers)} *
                  engine->model().hyperparameters().layer(0).n_heads * cache->n_slots(n_all - 1, 0);
}

void Session::Data::Advance(std::span<const TokenId> added) {
  if (tokens.size() + added.size() > tokens.capacity()) {
    tokens.reserve(std::max(tokens.size() + added.size() + kTokensAhead, tokens.size() * 3 / 2));
  }
  tokens.insert(tokens.end(), added.begin(), added.end());
}

Result<bool> Session::Prefill(std::span<const TokenId> tokens, const PrefillOptions& options) {
  if (tokens.empty()) return true;
  if (data_->compressor.SearchesQuality(*data_->cache, std::ssize(tokens)))
    return PrefillToQuality(tokens, options);
  runtime::Prefill prefill(data_->engine->step());
  const runtime::Prefill::Prompt prompt = {.session = this,
                                           .tokens = tokens,
                                           .on_logits = options.on_logits,
                                           .logits_from = options.logits_from};
  prefill.Begin({&prompt, 1});
  const model::Quota quota = options.progress ? model::Quota{.n_blocks = 1} : model::Quota{};
  double reported = 0;
  while (!prefill.Run(quota)) {
    const double done = prefill.done();
    if (!options.progress || done <= reported) continue;  // no progress: logits are being computed
    reported = done;
    if (!options.progress(done)) return false;
  }
  if (prefill.failure(0)) return *prefill.failure(0);
  // The return value is ignored, as nothing is left to stop: this reports that methods that decide
  // at the end are done.
  if (options.progress && reported < 1) options.progress(1);
  return true;
}

Result<void> Session::Decode(TokenId token) {
  const std::span<const TokenId> added(&token, 1);
  WINNOW_TRY(PrepareStep(token));
  try {
    const model::TokenSpan span = BeginStep(added);
    return EndStep(added, data_->engine->step().RunAll({&span, 1}, data_->options.row_block));
  } catch (const std::exception&) {  // std::bad_alloc: remove what the cache holds of the token
    AbandonStep();
    throw;
  }
}

Result<void> Session::PrepareStep(TokenId token) {
  Data& data = *data_;
  WINNOW_TRY(CheckTokens({&token, 1}));
  if (n_tokens() >= capacity()) return ContextFull(1, n_tokens(), capacity());
  // With reassigned positions a text may be longer than the cache, which evicts in time: check the
  // cache's own capacity.
  const int64_t n_held = data.MaxHeld();
  if (n_held >= data.cache->capacity()) return ContextFull(1, n_held, data.cache->capacity());
  if (n_tokens() == 0) WINNOW_TRY(data.compressor.BeginPrompt(*data.cache, 1, 1));
  return data.compressor.CheckStep(*data.cache);
}

Result<void> Session::CheckTokens(std::span<const TokenId> tokens) const {
  const int64_t vocabulary = data_->engine->model().hyperparameters().vocabulary;
  for (const TokenId token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return Error{"session: token " + std::to_string(token) + " is outside the vocabulary of " +
                 std::to_string(vocabulary)};
  }
  return {};
}

model::TokenSpan Session::BeginStep(std::span<const TokenId> token) {
  return data_->BeginCall(token, Phase::kDecode);
}

Result<void> Session::EndStep(std::span<const TokenId> token, Result<void> done) {
  if (done) done = data_->EndCall(token, Phase::kDecode);
  if (!done) data_->Rollback();
  return done;
}

void Session::AbandonStep() {
  data_->has_logits = false;  // the step may have overwritten those of the token before
  data_->Rollback();
}

}  // namespace winnow::runtime
