#include "runtime/compressor.h"

#include <algorithm>

#include "base/check.h"
#include "compression/taps.h"
#include "runtime/invariants.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

// Less than this is read from the processor's caches anyway, or nearly.
constexpr int64_t kGatherFromBytes = 8 << 20;

}  // namespace

Result<void> Compressor::Check(const CompressionOptions& options) {
  const int n_budgets = (options.size != 0 ? 1 : 0) + (options.ratio != 0 ? 1 : 0) +
                        (options.memory_bytes != 0 ? 1 : 0);
  if (n_budgets > 1) {
    return Error{"cache budget: found " + std::to_string(n_budgets) +
                 ", expected one of slots, share of the prompt, bytes"};
  }
  if (options.size < 0) {
    return Error{"cache budget: found " + std::to_string(options.size) +
                 " slots per KV head, expected 1 or more"};
  }
  if (!(options.ratio >= 0 && options.ratio <= 1)) {
    return Error{"cache budget: found a share of " + std::to_string(options.ratio) +
                 " of the prompt, expected more than 0 and at most 1"};
  }
  if (options.memory_bytes < 0 || options.prefill_chunk < 0) {
    return Error{"cache budget: bytes and chunks are not negative"};
  }
  if (!options.method) {
    if (options.size != 0 || options.ratio != 0) {
      return Error{"cache budget: the full cache has none; name a method"};
    }
    return {};
  }
  const compression::Traits& traits = options.method->traits();
  if (traits.needs_budget && n_budgets == 0) {
    return Error{traits.spec +
                 ": needs a budget: slots per KV head, a share of the prompt, or bytes"};
  }
  if (options.size != 0 && options.size < traits.min_budget) {
    return Error{traits.spec + ": a budget of " + std::to_string(options.size) +
                 " slots per KV head is too small, it needs at least " +
                 std::to_string(traits.min_budget)};
  }
  if (!traits.needs_budget && !traits.holds_budget && (options.size != 0 || options.ratio != 0)) {
    return Error{traits.spec + ": finds its own size and has no budget of slots; drop it"};
  }
  return {};
}

void Compressor::Shape(const CompressionOptions& options, const ModelFacts& model,
                       cache::CacheConfig& config) {
  if (!options.method) return;
  const compression::Traits& traits = options.method->traits();
  config.positions = traits.positions;
  config.distance_cap = traits.distance_cap > 0 ? traits.distance_cap : model.trained_context;
  const compression::Needs needs = options.method->needs();
  config.state = needs.state;
  config.transient_capacity = needs.replay.MaxTokens(config.capacity);
  config.shared_rows = traits.shared_rows;
  if (traits.per_query_head) {
    config.n_copies = model.n_q_heads / config.shape.n_kv_heads;
    config.shape.n_kv_heads = model.n_q_heads;
  }
  config.bias_column = traits.bias_column;
  if (traits.evicts_in_decode) config.gather_from_bytes = kGatherFromBytes;
}

bool Compressor::Compresses(Phase phase) const {
  if (!active()) return false;
  const compression::Traits& traits = options_.method->traits();
  return phase == Phase::kPrefill ? traits.compresses_prefill : traits.evicts_in_decode;
}

void Compressor::BeginCall(Phase phase, int64_t n_call) {
  phase_ = phase;
  violation_.reset();
  n_rows_ = n_call;
  n_seen_ += n_call;
  if (phase == Phase::kPrefill) {
    n_prompt_ = n_seen_;
    if (active()) memory_ = options_.method->MakeMemory();
    replayed_ = false;
  }
}

kernels::TapSpec Compressor::Taps() const {
  if (!active()) return {};
  return compression::TapsOfCall(needs_, phase_, n_seen_);
}

attention::RowSpec Compressor::Rows() const {
  if (!active() || phase_ != Phase::kPrefill) return {};
  return needs_.prompt_rows;
}

compression::LayerCall Compressor::MakeCall(cache::Cache& cache, const kernels::Taps& taps) {
  return {.backend = backend_,
          .cache = cache,
          .state = cache::StateView(cache),
          .scratch = scratch_,
          .taps = taps,
          .phase = phase_,
          .n_layers = cache.config().shape.n_layers,
          .n_q_heads = n_q_heads_,
          .n_new = n_rows_,
          .n_seen = n_seen_,
          .budget = budget_,
          .memory = memory_.get(),
          .projections = projections_,
          .profiles = profiles_,
          .on_error_curve = options_.on_error_curve ? &options_.on_error_curve : nullptr,
          .replayed = replayed_};
}

// Captures fit the functions' own storage: they are made for every layer of a decode step.
compression::PlanHooks Compressor::MakeHooks(const cache::Cache& cache) {
  compression::PlanHooks hooks;
  if (options_.on_plan) {
    hooks.before = [this, &cache](const cache::Plan& plan) {
      options_.on_plan(plan, {.cache = cache, .phase = phase_, .n_seen = n_seen_});
    };
  }
  if (kChecksInvariants) {
    hooks.after = [this, &cache](const cache::Plan& plan) { CheckLiveBytes(cache, plan.layer); };
  }
  return hooks;
}

void Compressor::BeginReplay(const compression::ReplayChunk& chunk, int64_t n_rows) {
  replay_chunk_ = chunk;
  n_replay_rows_ = n_rows;
  replayed_ = true;
}

Result<void> Compressor::AfterReplayLayer(cache::Cache& cache, const attention::LayerDone& done) {
  CheckLiveBytes(cache);
  compression::LayerCall call = MakeCall(cache, done.taps);
  call.layer = done.layer;
  call.n_new = n_replay_rows_;
  call.rows = done.rows;
  call.rope = &done.rope;
  call.scale = done.scale;
  call.replay = replay_chunk_;
  options_.method->ObserveReplay(call);
  return FirstViolation();
}

void Compressor::DecideAll(cache::Cache& cache) {
  if (!DecidesAtEnd()) return;
  const kernels::Taps none;
  compression::LayerCall call = MakeCall(cache, none);
  call.layer = call.n_layers - 1;
  compression::DecideAllAndApply(*options_.method, cache, call, plans_, MakeHooks(cache));
}

Result<void> Compressor::AfterLayer(cache::Cache& cache, const attention::LayerDone& done) {
  if (!active()) return {};
  // What was between two steps, and the layers of a prompt that are still to come, is not known.
  if (phase_ == Phase::kPrefill || done.layer == 0) {
    CheckLiveBytes(cache);
  } else {
    CheckLiveBytes(cache, done.layer);
  }
  compression::LayerCall call = MakeCall(cache, done.taps);
  call.layer = done.layer;
  call.rows = done.rows;
  call.rope = &done.rope;
  call.scale = done.scale;
  compression::DecideAndApply(*options_.method, cache, call, done.rope, plans_, MakeHooks(cache));
  if (!plans_.kept_rows.empty()) n_rows_ = static_cast<int64_t>(plans_.kept_rows.size());
  return FirstViolation();
}

Result<void> Compressor::EndCall(const cache::Cache& cache) {
  memory_.reset();
  CheckLiveBytes(cache);
  if (kChecksInvariants && Compresses(phase_)) {
    Record(WINNOW_INVARIANT(invariants_, KeepsSizes(cache, phase_, 0)));
  }
  return FirstViolation();
}

void Compressor::Record(const Result<void>& holds) {
  if (!holds && !violation_) violation_ = holds.error();
}

Result<void> Compressor::FirstViolation() const {
  return violation_ ? Result<void>(*violation_) : Result<void>();
}

void Compressor::CheckLiveBytes(const cache::Cache& cache) {
  if (!kChecksInvariants) return;
  live_bytes_ = cache.live_bytes();
  layer_bytes_.assign(static_cast<size_t>(cache.config().shape.n_layers), 0);
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    for (int head = 0; head < cache.config().shape.layer(layer).n_kv_heads; ++head) {
      layer_bytes_[static_cast<size_t>(layer)] += cache.live_bytes(layer, head);
    }
  }
  CheckLimits();
}

void Compressor::CheckLiveBytes(const cache::Cache& cache, int layer) {
  if (!kChecksInvariants) return;
  int64_t& bytes = layer_bytes_[static_cast<size_t>(layer)];
  live_bytes_ -= bytes;
  bytes = 0;
  for (int head = 0; head < cache.config().shape.layer(layer).n_kv_heads; ++head) {
    bytes += cache.live_bytes(layer, head);
  }
  live_bytes_ += bytes;
  CheckLimits();
}

void Compressor::CheckLimits() {
  const int64_t live = live_bytes_;
  Record(
      WINNOW_INVARIANT(invariants_, options_.memory_bytes == 0 || live <= options_.memory_bytes));
  Record(WINNOW_INVARIANT(invariants_, live <= planned_peak_));
  if (n_seen_ > n_reserved_tokens_) return;
  const int64_t surplus = phase_ == Phase::kPrefill ? reservation_.prefill_surplus_bytes : 0;
  Record(WINNOW_INVARIANT(invariants_, live <= reservation_.steady_bytes + surplus));
}

bool Compressor::KeepsSizes(const cache::Cache& cache, Phase phase, int64_t n_more) const {
  const compression::Method& method = *options_.method;
  const int n_layers = cache.config().shape.n_layers;
  const int64_t n_heads = cache.config().shape.n_kv_heads;
  const bool prefill = phase == Phase::kPrefill;
  compression::Method::Sizes sizes =
      prefill ? compression::Method::Sizes{}
              : method.DecodeSizes(budget_, n_prompt_, n_seen_, n_layers);
  Entries total;
  bool keeps = true;
  for (int layer = 0; layer < n_layers; ++layer) {
    const Entries held = EntriesHeld(cache, layer);
    total.slots += held.slots;
    total.rows += held.rows;
    if (prefill) {
      sizes.layer_slots = method.LayerSlots(layer, n_layers, budget_, n_seen_);
      sizes.layer_rows = method.LayerRows(layer, n_layers, budget_, n_seen_);
    }
    keeps = keeps && held.slots <= (sizes.layer_slots + n_more) * n_heads &&
            held.rows <= (sizes.layer_rows + n_more) * n_heads;
  }
  if (prefill) {
    sizes.total_slots = method.TotalSlots(budget_, n_seen_, n_layers);
    sizes.total_rows = method.TotalRows(budget_, n_seen_, n_layers);
  }
  const int64_t n_more_in_all = n_more * n_layers;
  keeps = keeps && total.slots <= (sizes.total_slots + n_more_in_all) * n_heads &&
          total.rows <= (sizes.total_rows + n_more_in_all) * n_heads;
  // Generated tokens that nothing evicts come on top of a budget.
  return keeps && (!method.traits().holds_budget || budget_ == 0 ||
                   total.rows <= (budget_ * n_layers + n_more_in_all) * n_heads);
}

void Compressor::Reserve(const Reservation& reservation, int64_t n_tokens) {
  reservation_ = reservation;
  n_reserved_tokens_ = n_seen_ + n_tokens;
}

std::span<const int32_t> Compressor::RowsKept() const { return plans_.kept_rows; }

void Compressor::Reset() {
  memory_.reset();
  n_seen_ = 0;
  n_prompt_ = 0;
  n_next_ = 0;
  budget_ = 0;
  n_reserved_tokens_ = -1;
}

void Compressor::ResumeFrom(const Progress& progress) {
  budget_ = progress.budget;
  n_seen_ = progress.n_seen;
  n_prompt_ = progress.n_prompt;
  n_next_ = progress.n_next;
}

Result<void> Compressor::Restore(const Progress& progress, const cache::Cache& cache) {
  ResumeFrom(progress);
  if (!active()) return {};
  if (options_.size > 0 && budget_ > 0 && budget_ != options_.size) {
    return Error{"its budget is " + std::to_string(budget_) + " slots, expected " +
                 std::to_string(options_.size)};
  }
  // What was generated since the prompt, where nothing evicts it, comes on top.
  const int64_t n_generated = n_seen_ - n_prompt_;
  const bool decodes = n_generated > 0 && Compresses(Phase::kDecode);
  const bool keeps = decodes                       ? KeepsSizes(cache, Phase::kDecode, 0)
                     : Compresses(Phase::kPrefill) ? KeepsSizes(cache, Phase::kPrefill, n_generated)
                                                   : true;
  if (keeps) return {};
  return Error{"it holds more entries than its method and budget of " + std::to_string(budget_) +
               " slots keep of " + std::to_string(n_seen_) + " tokens"};
}

void Compressor::Truncate(int64_t n_tokens) {
  n_seen_ = std::min(n_seen_, n_tokens);
  n_prompt_ = std::min(n_prompt_, n_tokens);
}

}  // namespace winnow::runtime
