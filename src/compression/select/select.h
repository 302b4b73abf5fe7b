#pragma once

#include <memory>
#include <vector>

#include "compression/parameters.h"
#include "compression/parts.h"
#include "compression/score/score.h"

namespace winnow::compression::select {

using SelectorPtr = std::shared_ptr<const Selector>;

// The best scores stay; of equal ones the newer (docs/methods/semantics.md#ties).
SelectorPtr TopK();

// How TreeKV's pointer moves on: by one, or by two as line 16 of the paper's Algorithm 1 prints
// (which leaves out every other pair of an even number).
enum class Cycle { kUnit, kLiteral };

// One of two neighbours goes, the pair moving from the oldest to the newest and around [TreeKV,
// Algorithm 1]. State: a head number, where the pair stands.
struct PairConfig {
  Cycle cycle = Cycle::kUnit;
  bool select_left = false;  // always keep the older of the two, whatever the scores (ablation)
};
SelectorPtr Pair(const PairConfig& config);

// The same over blocks of tokens that arrive one after another, by the mean score of the entries a
// block has [TreeKV, prefill; docs/methods/semantics.md#chunks]. A block is `block` tokens of the
// text; it arrives with the first of them that is no longer protected, and the others join it, or
// go if it went. What arrives while there are n_keep / block blocks makes one go; after a stretch
// of decoding, which thins blocks, as many as it takes. State: three head numbers, so that the tree
// goes on over the chunks of a prompt and the turns of a chat.
struct TreeBlocksConfig {
  int block = 32;  // BlockUnder a small budget
  Cycle cycle = Cycle::kUnit;
  bool select_left = false;
};
SelectorPtr TreeBlocks(const TreeBlocksConfig& config);

// Whole blocks by their mean score, in rounds: in each the prefix is cut into as many groups as the
// round says, and every group gives its best blocks [HBW-KV].
struct RoundsConfig {
  int block = 0;  // entries; 0: 1/32 of what the head keeps in all
  std::vector<int> rounds = {1, 8};
};
SelectorPtr Rounds(const RoundsConfig& config);

// One of each of n_keep blocks of equal length (to one entry) stays [HBW-KV, Table 2].
struct RepresentativesConfig {
  enum class Which { kFirst, kLast, kBest };  // kBest: of equal scores the newer
  Which which = Which::kBest;
};
SelectorPtr Representatives(const RepresentativesConfig& config);

template <class Visitor>
void Visit(PairConfig& c, Visitor& v) {
  v("cycle", c.cycle, "how the pointer moves on", Choices{"unit", "literal"});
  v("select_left", c.select_left, "keep the older of the two, whatever the scores");
}

template <class Visitor>
void Visit(TreeBlocksConfig& c, Visitor& v) {
  v("block", c.block, "entries per block", Range{1, 1 << 20});
  v("cycle", c.cycle, "how the pointer moves on", Choices{"unit", "literal"});
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

// The worst score goes, but only entries whose attention varies little over the queries may go: the
// budget - floor(ratio * budget) - sinks with the smallest standard deviation [RoCo,
// arXiv:2402.06262]. State: three columns, two where the scores are means of the same attention.
struct GateConfig {
  double ratio = 0.3;
  double prefill_ratio = 0.1;  // in prefill calls
  score::Reduce reduce = score::Reduce::kMean;
  bool scores_are_means = false;  // the method's scores are score::RunningMean's, reduced alike
};
SelectorPtr Gate(const GateConfig& config);

template <class Visitor>
void Visit(GateConfig& c, Visitor& v) {
  v("ratio", c.ratio, "share of the budget that varies too much to go", Range{0, 1});
  v("prefill_ratio", c.prefill_ratio, "the same in prefill", Range{0, 1});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

}  // namespace winnow::compression::select
