#pragma once

#include <cstdint>
#include <string>

#include "attention/attention_policy.h"
#include "cache/cache.h"

// What a method states about itself. Beyond taps and plans (Needs, PlanList) every capability that
// it needs of the engine is a value of its own here, read in one place
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
    kLastLayer,  // by Decide in the last layer, for all of them
    kAtEnd,      // by DecideAll, for all layers after the last one and the replay
  };
  Prefill prefill = Prefill::kEachLayer;
  // Of kAtEnd: what Decide and ObserveReplay note in the memory is the same under every budget
  // below n_seen, so that DecideAll can be asked with several (Memory::Copy).
  bool learns_for_all_budgets = false;
  // A short prompt after others is not compressed, but comes on top as generated tokens do
  // (runtime::BudgetPlan::Appends): what is kept may serve any question, and would have to make
  // room for this one.
  bool appends_short_prompts = false;
  bool evicts_in_decode = false;  // false: the cache grows by one entry per generated token
  bool shares_threads = false;    // the work after a generated token is long, and divided between
                                  // the threads where they are many

  bool Evicts(Phase phase) const {
    return phase == Phase::kPrefill ? prefill != Prefill::kNever : evicts_in_decode;
  }
  bool Evicts() const { return Evicts(Phase::kPrefill) || Evicts(Phase::kDecode); }
  // Whether no layer is compressed before the last one was computed.
  bool WaitsForAllLayers() const {
    return prefill == Prefill::kLastLayer || prefill == Prefill::kAtEnd;
  }
  bool operator==(const DecisionPolicy&) const = default;
};

// What a budget, slots per KV head, means.
struct BudgetPolicy {
  bool needed = true;  // false: the method finds its own size
  bool held = true;    // it is a bound: rows stored in all layers together are at most
                       // budget * n_layers (TotalRows, DecodeSizes)
  int64_t min = 1;     // slots it must be given, else it has to protect more than it may

  bool Heeded() const { return needed || held; }  // whether one means anything
  bool operator==(const BudgetPolicy&) const = default;
};

// Which rows of a prefill call the layers after a decided one still compute.
enum class RowPolicy {
  kAll,
  kKept,  // PlanList::kept_rows: the other tokens have no logits
};

struct Traits {
  std::string spec = {};           // name and parameters as given, e.g. "snapkv:window=16"
  StoragePolicy storage = {};      // read where a cache is made (Compressor::Shape)
  AttentionPolicy attention = {};  // read by attention (LayerPass)
  RowPolicy rows = RowPolicy::kAll;
  DecisionPolicy decisions = {};
  BudgetPolicy budget = {};
  bool tells_error_curves = false;  // LayerCall::on_error_curve, of a prompt that is replayed
};

}  // namespace winnow::compression
