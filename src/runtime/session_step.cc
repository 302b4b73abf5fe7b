#include <algorithm>
#include <string>

#include "base/check.h"
#include "runtime/session_data.h"

// How a session's tokens go through the model.
namespace winnow::runtime {

using compression::Phase;

namespace {

// Tokens there is room for beyond those in use, so that decode steps rarely allocate.
constexpr size_t kTokensAhead = 1024;

}  // namespace

// Captures fit the functions' own storage, so that a decode step allocates nothing.
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
  span.sequence.taps = compressor.Taps();
  span.sequence.rows = compressor.Rows();
  span.sequence.after_layer = [this](const attention::LayerDone& done) -> Result<void> {
    compressor.AfterLayer(*cache, done);
    return {};
  };
  const compression::Traits& traits = options.compression.method->traits();
  if (traits.drops_hidden_states && phase == Phase::kPrefill) {
    span.rows_kept = [this](int) { return compressor.RowsKept(); };
  }
  if (selects() && phase == Phase::kDecode) {
    span.sequence.top_p = traits.top_p;
    span.sequence.top_p_from = traits.dense_layers;
    span.sequence.n_attended = &n_attended;
  }
  return span;
}

void Session::Data::EndCall(std::span<const TokenId> added, Phase phase) {
  compressor.EndCall(*cache);
  has_logits = true;
  if (selects() && phase == Phase::kDecode) CountAttendable();
  Advance(added);
}

void Session::Data::Rollback() {
  if (evicts()) {
    Clear();
  } else {
    cache->Truncate(static_cast<cache::Position>(n_tokens()));
  }
}

void Session::Data::CountAttendable() {
  const int n_all = cache->config().shape.n_layers;
  const int n_layers = n_all - options.compression.method->traits().dense_layers;
  n_attendable += int64_t{std::max(0, n_layers)} * engine->model().hyperparameters().n_heads *
                  cache->n_slots(n_all - 1, 0);
}

void Session::Data::Advance(std::span<const TokenId> added) {
  if (tokens.size() + added.size() > tokens.capacity()) {
    tokens.reserve(std::max(tokens.size() + added.size() + kTokensAhead, tokens.size() * 3 / 2));
  }
  tokens.insert(tokens.end(), added.begin(), added.end());
}

Result<bool> Session::Prefill(std::span<const TokenId> tokens, const PrefillOptions& options) {
  if (tokens.empty()) return true;
  Data& data = *data_;
  const auto n = static_cast<int64_t>(tokens.size());
  WINNOW_TRY(CheckCapacity(n));
  WINNOW_TRY(CheckTokens(tokens));
  WINNOW_ASSIGN(const int64_t n_call,
                data.compressor.BeginPrompt(*data.cache, n, data.CallSize(n)));
  for (int64_t first = 0; first < n; first += n_call) {
    const auto part = tokens.subspan(static_cast<size_t>(first),
                                     static_cast<size_t>(std::min(n_call, n - first)));
    WINNOW_ASSIGN(const bool finished, data.Prefill(part, {.first = first,
                                                           .n = static_cast<int64_t>(part.size()),
                                                           .n_prompt = n,
                                                           .wanted = options}));
    if (!finished) return false;
  }
  return true;
}

Result<bool> Session::Data::Prefill(std::span<const TokenId> added, const Part& part) {
  model::TokenSpan span = BeginCall(added, Phase::kPrefill);
  const PrefillOptions& wanted = part.wanted;
  const int64_t logits_from = wanted.logits_from - part.first;
  const bool gives_rows = wanted.logits_from >= 0 && logits_from < part.n;
  // Without wanted rows the caller gets the very last ones.
  if (wanted.on_logits && (gives_rows || part.first + part.n == part.n_prompt)) {
    span.logits_from = gives_rows ? std::max<int64_t>(0, logits_from) : part.n - 1;
    span.on_logits = [&part](int64_t first_row, std::span<const float> rows) {
      part.wanted.on_logits(part.first + first_row, rows);
    };
  }
  Result<bool> finished = false;
  if (compressor.DecidesAtEnd()) {
    finished = RunAndDecide(span, added, part);
  } else {
    finished = Run(span, part);
  }
  if (finished && *finished) {
    EndCall(added, Phase::kPrefill);
  } else {
    Rollback();
  }
  return finished;
}

Result<bool> Session::Data::Run(const model::TokenSpan& span, const Part& part) {
  model::Step& step = engine->step();
  WINNOW_TRY(step.Begin({&span, 1}, options.row_block));
  const auto& progress = part.wanted.progress;
  const model::Quota quota = progress ? model::Quota{.n_blocks = 1} : model::Quota{};
  double reported = 0;
  for (;;) {
    WINNOW_ASSIGN(const bool finished, step.Run(quota));
    if (finished) return true;
    const double done = step.done();
    if (done <= reported) continue;  // at work on the logits
    reported = done;
    if (part.KeepsGoing(done)) continue;
    step.Abandon();
    return false;
  }
}

Result<void> Session::Decode(TokenId token) {
  const std::span<const TokenId> added(&token, 1);
  WINNOW_TRY(PrepareStep(token));
  const model::TokenSpan span = BeginStep(added);
  const Result<void> done = data_->engine->step().RunAll({&span, 1}, data_->options.row_block);
  EndStep(added, done.has_value());
  return done;
}

Result<void> Session::PrepareStep(TokenId token) {
  Data& data = *data_;
  WINNOW_TRY(CheckTokens({&token, 1}));
  if (n_tokens() >= capacity()) return ContextFull(1, n_tokens(), capacity());
  // Where positions are reassigned, a text may be longer than the cache, which evicts in time.
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

void Session::EndStep(std::span<const TokenId> token, bool done) {
  if (done) {
    data_->EndCall(token, Phase::kDecode);
  } else {
    data_->Rollback();
  }
}

}  // namespace winnow::runtime
