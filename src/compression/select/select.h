#pragma once

#include <memory>
#include <vector>

#include "compression/parameters.h"
#include "compression/parts.h"
#include "compression/score/score.h"

namespace winnow::compression::select {

using SelectorPtr = std::shared_ptr<const Selector>;

// Keeps the best scores; among equal scores the newer (docs/methods/semantics.md#ties).
SelectorPtr TopK();

// How far TreeKV's pointer moves: by one, or by two as line 16 of the paper's Algorithm 1 prints
// (which skips every other pair if their number is even).
enum class Cycle { kUnit, kLiteral };

// Evicts one of two neighbours; the pair moves from the oldest entries to the newest and wraps
// around [TreeKV, Algorithm 1]. State: one head number, the position of the pair.
struct PairConfig {
  Cycle cycle = Cycle::kUnit;
  bool select_left = false;  // always keep the older of the two, whatever the scores (ablation)
};
SelectorPtr Pair(const PairConfig& config);

// The same over blocks of tokens that arrive in order, by the mean score of the entries a block
// still has [TreeKV, prefill; docs/methods/semantics.md#chunks]. A block is `block` tokens of the
// text. It arrives when its first token is no longer protected; its later tokens join it, or are
// evicted if it was evicted. A block that arrives when there are n_keep / block blocks evicts one;
// after a stretch of decoding, which thins blocks, as many as needed. State: three head numbers, so
// that the tree continues over the chunks of a prompt and the turns of a chat.
struct TreeBlocksConfig {
  int block = 32;  // smaller under a small budget (BlockUnder)
  Cycle cycle = Cycle::kUnit;
  bool select_left = false;
};
SelectorPtr TreeBlocks(const TreeBlocksConfig& config);

// Keeps whole blocks by their mean score, in rounds. Each round cuts the prefix into its number of
// groups, and every group contributes its best blocks [HBW-KV].
struct RoundsConfig {
  int block = 0;  // entries; 0: 1/32 of all that the head keeps
  std::vector<int> rounds = {1, 8};
};
SelectorPtr Rounds(const RoundsConfig& config);

// Cuts the region into n_keep blocks of equal length (to one entry) and keeps one entry of each
// [HBW-KV, Table 2].
struct RepresentativesConfig {
  enum class Which { kFirst, kLast, kBest };  // kBest: among equal scores the newer
  Which which = Which::kBest;
};
SelectorPtr Representatives(const RepresentativesConfig& config);

template <class Visitor>
void Visit(PairConfig& c, Visitor& v) {
  v("cycle", c.cycle, "how far the pointer moves", Choices{"unit", "literal"});
  v("select_left", c.select_left, "keep the older of the two, whatever the scores");
}

template <class Visitor>
void Visit(TreeBlocksConfig& c, Visitor& v) {
  v("block", c.block, "entries per block", Range{1, 1 << 20});
  v("cycle", c.cycle, "how far the pointer moves", Choices{"unit", "literal"});
  v("select_left", c.select_left, "keep the older of the two, whatever the scores");
}

template <class Visitor>
void Visit(RoundsConfig& c, Visitor& v) {
  v("block", c.block, "entries per block; 0: 1/32 of the budget", Range{0, 1 << 20});
  v("rounds", c.rounds, "groups of each round", Range{1, 1 << 20});
}

template <class Visitor>
void Visit(RepresentativesConfig& c, Visitor& v) {
  v("which", c.which, "entry of each block that stays", Choices{"first", "last", "best"});
}

// Evicts the worst score, but only among the entries whose attention varies least over the queries:
// the budget - floor(ratio * budget) - sinks with the smallest standard deviation [RoCo,
// arXiv:2402.06262]. State: three columns; two if the scores are means of the same attention.
struct GateConfig {
  double ratio = 0.3;
  double prefill_ratio = 0.1;  // in prefill calls
  score::Reduce reduce = score::Reduce::kMean;
  bool scores_are_means = false;  // the scores are score::RunningMean's, with the same reduction
};
SelectorPtr Gate(const GateConfig& config);

template <class Visitor>
void Visit(GateConfig& c, Visitor& v) {
  v("ratio", c.ratio, "share of the budget that is exempt because its attention varies most",
    Range{0, 1});
  v("prefill_ratio", c.prefill_ratio, "the same in prefill", Range{0, 1});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

}  // namespace winnow::compression::select
