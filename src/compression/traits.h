#pragma once

#include <cstdint>
#include <string>

#include "attention/attention_policy.h"
#include "cache/cache.h"

// What a method states about itself. Every capability that it needs of the engine beyond taps and
// plans (Needs, PlanList) is a value of its own here, read in one place
// (docs/decisions/0016-capabilities.md).
namespace winnow::compression {

using attention::AttentionPolicy;
using cache::Phase;
using cache::PositionMode;
using cache::StoragePolicy;

// When entries are evicted.
struct DecisionPolicy {
  enum class Prefill {
    kNever,
    kEachLayer,  // by Decide, when the attention of the layer is done
    kLastLayer,  // by Decide in the last layer, for all layers
    kAtEnd,      // by DecideAll, for all layers after the last one and the replay
  };
  Prefill prefill = Prefill::kEachLayer;
  // Only with kAtEnd: Decide and ObserveReplay record the same in the memory under every budget
  // below n_seen, so that DecideAll can run with several budgets (Memory::Copy).
  bool learns_for_all_budgets = false;
  // A short prompt that follows others is appended without compression, as generated tokens are
  // (runtime::BudgetPlan::Appends). The kept entries may serve any question; compressing again
  // would evict some of them to make room for this one.
  bool appends_short_prompts = false;
  bool evicts_in_decode = false;  // false: the cache grows by one entry per generated token
  bool shares_threads = false;  // the work after a generated token is long; many threads divide it

  bool Evicts(Phase phase) const {
    return phase == Phase::kPrefill ? prefill != Prefill::kNever : evicts_in_decode;
  }
  bool Evicts() const { return Evicts(Phase::kPrefill) || Evicts(Phase::kDecode); }
  // Whether no layer is compressed before the last one is computed.
  bool WaitsForAllLayers() const {
    return prefill == Prefill::kLastLayer || prefill == Prefill::kAtEnd;
  }
  bool operator==(const DecisionPolicy&) const = default;
};

// The meaning of a budget, which counts slots per KV head.
struct BudgetPolicy {
  bool needed = true;  // false: the method finds its own size
  bool held = true;    // it is an upper bound: all layers together store at most
                       // budget * n_layers rows (TotalRows, DecodeSizes)
  int64_t min = 1;     // smallest budget: fewer slots cannot hold what the method must protect

  bool HasEffect() const { return needed || held; }  // whether a budget has any effect
  bool operator==(const BudgetPolicy&) const = default;
};

// Which rows of a prefill call are still computed in the layers after a decided one.
enum class RowPolicy {
  kAll,
  kKept,  // PlanList::kept_rows only: the other tokens get no logits
};

struct Traits {
  std::string spec = {};           // name and parameters as given, e.g. "snapkv:window=16"
  StoragePolicy storage = {};      // read where a cache is created (Compressor::Shape)
  AttentionPolicy attention = {};  // read by attention (LayerPass)
  RowPolicy rows = RowPolicy::kAll;
  DecisionPolicy decisions = {};
  BudgetPolicy budget = {};
  bool reports_error_curves = false;  // calls LayerCall::on_error_curve for a replayed prompt
};

}  // namespace winnow::compression
