#include "runtime/budget/compressor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "compression/taps.h"
#include "runtime/invariants.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

// Smaller caches are read (almost) entirely from the CPU's caches.
constexpr int64_t kGatherFromBytes = 8 << 20;
// Tokens of a text from which a prefill call's working memory is freed: it grows with the entries,
// and can be as large as what the call leaves in the cache. Generating needs little of it.
constexpr int64_t kLongText = 1024;

}  // namespace

void Compressor::Shape(const CompressionOptions& options, const ModelFacts& model,
                       cache::CacheConfig& config) {
  if (!options.method) return;
  const compression::Traits& traits = options.method->traits();
  config.storage = traits.storage;
  if (config.storage.distance_cap == 0) config.storage.distance_cap = model.trained_context;
  const compression::Needs needs = options.method->needs();
  config.state = needs.state;
  config.transient_capacity = needs.replay.MaxTokens(config.capacity);
  if (config.storage.per_query_head) {
    config.n_copies = model.n_q_heads / config.shape.n_kv_heads;
    config.shape.n_kv_heads = model.n_q_heads;
  }
  if (traits.decisions.evicts_in_decode) config.gather_from_bytes = kGatherFromBytes;
}

Compressor::Call Compressor::Call::Copy() const {
  return {.phase = phase,
          .n_rows = n_rows,
          .later_prompt = later_prompt,
          .n_protected = n_protected,
          .memory = memory ? memory->Copy() : nullptr,
          .replay_chunk = replay_chunk,
          .n_replay_rows = n_replay_rows,
          .replayed = replayed,
          .n_decided = n_decided};
}

Result<ResolvedBudget> Compressor::CheckPrompt(const cache::Cache& cache, int64_t n_prompt,
                                               int64_t n_call) const {
  CacheContents held;
  ReadContents(cache, held);
  return MakePlan(cache).Prompt(held, n_prompt, n_call);
}

Result<int64_t> Compressor::BeginPrompt(const cache::Cache& cache, int64_t n_prompt,
                                        int64_t n_call) {
  ReadContents(cache, contents_);
  const BudgetPlan plan = MakePlan(cache);
  WINNOW_ASSIGN(ResolvedBudget resolved, plan.Prompt(contents_, n_prompt, n_call));
  if (next_budget_ != 0) resolved.budget = std::exchange(next_budget_, 0);
  planned_peak_ = plan.PromptPeak(contents_, n_prompt, resolved);
  progress_.budget = resolved.budget;
  progress_.n_next = resolved.n_next;
  appends_ = resolved.appends;
  later_prompt_ = progress_.n_seen > 0 && resolved.n_call >= n_prompt;
  return resolved.n_call;
}

Result<Reservation> Compressor::Plan(const cache::Cache& cache, int64_t n_prompt, int64_t n_call,
                                     int64_t n_generate) const {
  CacheContents held;
  ReadContents(cache, held);
  return MakePlan(cache).Reserve(held, n_prompt, n_call, n_generate);
}

void Compressor::Reserve(const Reservation& reservation, int64_t n_tokens) {
  reservation_ = reservation;
  n_reserved_tokens_ = progress_.n_seen + n_tokens;
}

Result<void> Compressor::CheckStep(const cache::Cache& cache) {
  if (options_.memory_bytes == 0 && !kChecksInvariants) return {};
  const BudgetPlan plan = MakePlan(cache);
  MemoryPlan& step = StartPlan(cache);
  planned_peak_ = plan.BytesWith(contents_.live_bytes, 1);
  if (options_.Evicts(Phase::kDecode)) {
    planned_peak_ = std::min(planned_peak_, step.Decode(progress_.budget, 1));
  }
  if (options_.memory_bytes == 0) return {};
  return plan.CheckBytes(planned_peak_, 1);
}

int64_t Compressor::RemainingTokens(const cache::Cache& cache) const {
  // Called for every token: do not count bytes without a limit.
  if (options_.memory_bytes == 0) return std::numeric_limits<int64_t>::max();
  return MakePlan(cache).RemainingTokens(cache.live_bytes());
}

MemoryPlan& Compressor::StartPlan(const cache::Cache& cache) {
  if (!plan_) plan_.emplace(ReadFacts(cache).cost, options_.method.get());
  ReadContents(cache, contents_);
  plan_->Start(contents_.layers, progress_.n_seen, progress_.n_prompt);
  return *plan_;
}

CallInvariants::Limits Compressor::MakeLimits() const {
  CallInvariants::Limits limits = {.memory = options_.memory_bytes, .planned = planned_peak_};
  if (progress_.n_seen <= n_reserved_tokens_) {
    limits.reserved = reservation_.steady_bytes +
                      (call_.phase == Phase::kPrefill ? reservation_.prefill_surplus_bytes : 0);
  }
  return limits;
}

void Compressor::BeginCall(Phase phase, int64_t n_call) {
  invariants_.BeginCall();
  call_ = {.phase = phase, .n_rows = n_call};
  progress_.n_seen += n_call;
  if (phase == Phase::kPrefill) {
    call_.later_prompt = later_prompt_;
    call_.n_protected = Protected(progress_.budget);
    progress_.n_prompt = progress_.n_seen;
    if (active()) call_.memory = options_.method->MakeMemory();
  }
}

void Compressor::Ask(attention::Sequence& sequence) const {
  if (!active()) return;
  const bool prefill = call_.phase == Phase::kPrefill;
  sequence.taps = compression::TapsOfCall(needs_, call_.phase, progress_.n_seen);
  sequence.rows = prefill ? needs_.prompt_rows : attention::RowSpec{};
  sequence.policy = prefill ? attention::AttentionPolicy{} : options_.method->traits().attention;
}

compression::LayerCall Compressor::MakeCall(cache::Cache& cache, const kernels::Taps& taps) {
  return {.backend = backend_,
          .cache = cache,
          .state = cache::StateView(cache),
          .scratch = scratch_,
          .taps = &taps,
          .phase = call_.phase,
          .n_layers = cache.config().shape.n_layers,
          .n_q_heads = n_q_heads_,
          .n_new = call_.n_rows,
          .n_seen = progress_.n_seen,
          .budget = progress_.budget,
          .n_protected = call_.n_protected,
          .memory = call_.memory.get(),
          .projections = projections_,
          .profiles = profiles_,
          .on_error_curve = options_.on_error_curve ? &options_.on_error_curve : nullptr,
          .replayed = call_.replayed};
}

// The captures fit into std::function's own storage: the hooks are made for every layer of a decode
// step.
compression::PlanHooks Compressor::MakeHooks(const cache::Cache& cache) {
  compression::PlanHooks hooks;
  if (options_.on_plan) {
    hooks.before = [this, &cache](const cache::Plan& plan) {
      options_.on_plan(plan, {.cache = cache, .phase = call_.phase, .n_seen = progress_.n_seen});
    };
  }
  if (kChecksInvariants) {
    hooks.after = [this, &cache](const cache::Plan& plan) {
      invariants_.CheckBytes(cache, plan.layer, MakeLimits());
    };
  }
  return hooks;
}

void Compressor::BeginReplay(const compression::ReplayChunk& chunk, int64_t n_rows) {
  call_.replay_chunk = chunk;
  call_.n_replay_rows = n_rows;
  call_.replayed = true;
}

Result<void> Compressor::AfterReplayLayer(cache::Cache& cache, const attention::LayerDone& done) {
  invariants_.CheckBytes(cache, MakeLimits());
  compression::LayerCall call = MakeCall(cache, done.taps);
  call.layer = done.layer;
  call.n_new = call_.n_replay_rows;
  call.rows = done.rows;
  call.rope = &done.rope;
  call.scale = done.scale;
  call.replay = call_.replay_chunk;
  options_.method->ObserveReplay(call);
  return invariants_.FirstViolation();
}

bool Compressor::DecideSome(cache::Cache& cache) {
  if (!DecidesAtEnd()) return true;
  const kernels::Taps none;
  compression::LayerCall call = MakeCall(cache, none);
  call.layer = call.n_layers - 1;
  call.pass = call_.n_decided++;
  return compression::DecideSomeAndApply(*options_.method, cache, call, plans_, MakeHooks(cache));
}

void Compressor::ChangeBudget(int64_t budget) {
  progress_.budget = budget;
  call_.n_protected = Protected(budget);
}

void Compressor::ContinueCall(const Compressor& other, const cache::Cache& copy, int64_t budget) {
  WINNOW_CHECK(other.DecidesAtEnd() && other.call_.n_decided == 0);
  ResumeFrom(other.progress_);
  call_ = other.call_.Copy();
  appends_ = other.appends_;
  planned_peak_ = other.planned_peak_;
  ChangeBudget(budget);
  invariants_.BeginCall();
  invariants_.CheckBytes(copy, MakeLimits());
}

Result<void> Compressor::AfterLayer(cache::Cache& cache, const attention::LayerDone& done) {
  if (!active()) return {};
  // The partial check needs other layers unchanged since the last check: that is not known between
  // two steps, nor for a prompt's layers that are still to come.
  if (call_.phase == Phase::kPrefill || done.layer == 0) {
    invariants_.CheckBytes(cache, MakeLimits());
  } else {
    invariants_.CheckBytes(cache, done.layer, MakeLimits());
  }
  compression::LayerCall call = MakeCall(cache, done.taps);
  call.layer = done.layer;
  call.rows = done.rows;
  call.rope = &done.rope;
  call.scale = done.scale;
  compression::DecideAndApply(*options_.method, cache, call, done.rope, plans_, MakeHooks(cache));
  if (!plans_.kept_rows.empty()) call_.n_rows = static_cast<int64_t>(plans_.kept_rows.size());
  return invariants_.FirstViolation();
}

Result<void> Compressor::EndCall(const cache::Cache& cache) {
  call_.memory.reset();
  invariants_.CheckBytes(cache, MakeLimits());
  if (kChecksInvariants && options_.Evicts(call_.phase)) {
    invariants_.CheckSizes(StartPlan(cache).KeepsSizes(call_.phase, progress_.budget, 0));
  }
  if (call_.phase == Phase::kPrefill && progress_.n_seen >= kLongText) {
    scratch_ = {};
    plans_ = {};
  }
  return invariants_.FirstViolation();
}

std::span<const int32_t> Compressor::RowsKept() const { return plans_.kept_rows; }

void Compressor::Reset() {
  call_.memory.reset();
  progress_ = {};
  n_reserved_tokens_ = -1;
}

Result<void> Compressor::Restore(const CompressionProgress& progress, const cache::Cache& cache) {
  ResumeFrom(progress);
  if (!active()) return {};
  // The first tokens determine the budget, and methods rely on their minimum.
  if (progress_.n_seen > 0) {
    const compression::BudgetPolicy& policy = options_.method->traits().budget;
    const int64_t smallest = options_.size > 0 ? options_.size
                             : policy.needed   ? std::max<int64_t>(1, policy.min)
                                               : 0;
    if (progress_.budget < smallest || (options_.size > 0 && progress_.budget != options_.size)) {
      return Error{"its budget is " + std::to_string(progress_.budget) + " slots, expected " +
                   (options_.size > 0 ? "" : "at least ") + std::to_string(smallest)};
    }
  }
  // Tokens generated since the prompt are added if nothing evicts them.
  const int64_t n_generated = progress_.n_seen - progress_.n_prompt;
  const bool decodes = n_generated > 0 && options_.Evicts(Phase::kDecode);
  if (!decodes && !options_.Evicts(Phase::kPrefill)) return {};
  const MemoryPlan& plan = StartPlan(cache);
  const bool keeps = decodes ? plan.KeepsSizes(Phase::kDecode, progress_.budget, 0)
                             : plan.KeepsSizes(Phase::kPrefill, progress_.budget, n_generated);
  if (keeps) return {};
  return Error{"it holds more entries than its method and budget of " +
               std::to_string(progress_.budget) + " slots keep of " +
               std::to_string(progress_.n_seen) + " tokens"};
}

void Compressor::Truncate(int64_t n_tokens) {
  progress_.n_seen = std::min(progress_.n_seen, n_tokens);
  progress_.n_prompt = std::min(progress_.n_prompt, n_tokens);
}

}  // namespace winnow::runtime
