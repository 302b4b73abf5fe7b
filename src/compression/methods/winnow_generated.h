#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// How winnow (winnow.cc) evicts generated tokens with generated=leave: a KV head returns to the
// size that the prompt left it, plus its newest entries.
namespace winnow::compression::methods {

struct GeneratedConfig {
  int recent = 64;     // newest entries that stay on top of that; as many leave at a time
  double decay = 0.7;  // factor on the scores after each eviction
};

// An entry's score is the largest weight that attention gave it since it left the newest entries,
// multiplied by `decay` at each eviction; the prompt's entries start with the prompt's scores. The
// lowest scores leave. Rest rows stay, and a head's newest rest row absorbs what leaves: each row
// counts for exp(bias) entries, and the weighted mean of all replaces the rest row.
class GeneratedEntries {
 public:
  // bias_column: of rest rows; -1: none. The state of this class begins after `first`.
  GeneratedEntries(const GeneratedConfig& config, int bias_column, const cache::StateShape& first)
      : c_(config),
        bias_column_(bias_column),
        score_column_(first.n_half_columns),
        n_held_(first.n_head_numbers) {}

  static cache::StateShape state() { return {.n_half_columns = 1, .n_head_numbers = 1}; }
  static kernels::TapSpec taps() {
    return {.column_max = true, .reduce = kernels::TapSpec::Reduce::kMax};
  }

  // Call when a prompt was read in this layer: its heads get new sizes. evicts: the sizes are what
  // compressing the prompt leaves, whatever the budget of this layer alone.
  void BeginPrompt(const LayerCall& call, bool evicts) const;
  // Sets the initial scores of a layer's entries, before any is evicted.  scores [kv_head][rank]
  void NoteScores(const LayerCall& call, std::span<const std::vector<float>> scores) const;
  // Marks the rows that the plan merges entries into as rest rows, which never leave.
  void NoteRestRows(const LayerCall& call, const Plan& plan) const;
  // Call after a decode call. Updates the scores; evicts from heads `recent` entries above their
  // size and newest entries.
  void Decide(const LayerCall& call, PlanList& plans) const;
  // Upper bounds after a decode call, as Method::DecodeSizes.
  Method::Sizes Sizes(int64_t budget, int64_t n, int n_layers) const;

 private:
  void SettleSizes(const LayerCall& call) const;
  void Leave(const LayerCall& call, int head, int64_t n_evict, cache::HeadPlan& plan) const;
  void MergeIntoRestRow(const LayerCall& call, int head, std::span<const int32_t> evicted,
                        int32_t rest, cache::HeadPlan& plan) const;

  GeneratedConfig c_;
  int bias_column_;
  int score_column_;
  int n_held_;  // head number: size without the newest; 0 or less: not known yet
};

}  // namespace winnow::compression::methods
