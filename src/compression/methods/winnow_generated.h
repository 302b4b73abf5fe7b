#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// What winnow (winnow.cc) does with generated tokens where they do not all stay: a KV head goes
// back to the size that the prompt left it, and its newest entries.
namespace winnow::compression::methods {

struct GeneratedConfig {
  int recent = 64;     // newest entries that stay beside it; as many leave at a time
  double decay = 0.7;  // of the scores, each time
};

// An entry's score is the largest weight that attention gave it since it stopped being one of the
// newest, decayed; of the prompt's entries it begins with the prompt's scores. The lowest leave.
// Rest rows stay, and the newest of a head takes in what leaves it: every row stands for as many
// entries as the exponential of its bias says, and the mean of all takes its place.
class GeneratedEntries {
 public:
  // bias_column: of rest rows; -1: there are none. Its own state comes behind `first`.
  GeneratedEntries(const GeneratedConfig& config, int bias_column, const cache::StateShape& first)
      : c_(config),
        bias_column_(bias_column),
        score_column_(first.n_half_columns),
        n_held_(first.n_head_numbers) {}

  static cache::StateShape state() { return {.n_half_columns = 1, .n_head_numbers = 1}; }
  static kernels::TapSpec taps() {
    return {.column_max = true, .reduce = kernels::TapSpec::Reduce::kMax};
  }

  // A prompt was read in this layer: its heads' sizes are found anew. evicts: what will be left of
  // them, whatever the budget of this layer alone.
  void BeginPrompt(const LayerCall& call, bool evicts) const;
  // What the entries of a layer begin with, before any is evicted.  scores [kv_head][rank]
  void NoteScores(const LayerCall& call, std::span<const std::vector<float>> scores) const;
  // The rows of a layer that entries are merged into never leave.
  void NoteRestRows(const LayerCall& call, const Plan& plan) const;
  // After a decode call.
  void Decide(const LayerCall& call, PlanList& plans) const;
  Method::Sizes Sizes(int64_t budget, int64_t n, int n_layers) const;

 private:
  void SettleSizes(const LayerCall& call) const;
  void Leave(const LayerCall& call, int head, int64_t n_leave, cache::HeadPlan& plan) const;
  void TakeIn(const LayerCall& call, int head, std::span<const int32_t> leavers, int32_t rest,
              cache::HeadPlan& plan) const;

  GeneratedConfig c_;
  int bias_column_;
  int score_column_;
  int n_held_;  // head number: entries besides the newest; not above 0 where it is not known yet
};

}  // namespace winnow::compression::methods
