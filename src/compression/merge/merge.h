#pragma once

#include <cstdint>
#include <memory>

#include "compression/parameters.h"
#include "compression/parts.h"
#include "compression/score/score.h"

namespace winnow::compression::merge {

using MergerPtr = std::shared_ptr<const Merger>;

// Each evicted entry flows into the most similar one that stays, if it is similar enough; otherwise
// it is dropped [D2O, arXiv:2406.13035, section 3.2]. Similar enough: at least tau, the mean
// similarity of the entries evicted when the first ones go, from then on a running mean.
// Several entries evicted at once after that: taken oldest first, with the keys as they were
// before. State: tau per KV head.
struct NearestConfig {
  // How much of the evicted goes in, by the similarity u of each: exp(u) against exp(1) for the
  // entry that stays [Eq. 11]; u as a factor of the vector, then the plain mean [code]; the plain
  // mean [ablation].
  enum class Weighting { kExponential, kCode, kAverage };
  // What is compared. kBoth: keys and values each find their own target and have their own tau.
  enum class Similarity { kKeys, kValues, kBoth };
  Weighting weighting = Weighting::kExponential;
  Similarity similarity = Similarity::kKeys;
  double beta = 0.5;  // share of the newest similarity in tau
  // Whether entries before the region that eviction chooses from, attention sinks, are targets too
  // [paper]. What flows into one changes nearly every later output.
  bool into_sinks = true;
};
MergerPtr Nearest(const NearestConfig& config);

template <class Visitor>
void Visit(NearestConfig& c, Visitor& v) {
  v("merge", c.weighting, "weights of what flows in, by its similarity u: exp(u), u, or all equal",
    Choices{"exp", "code", "average"});
  v("similarity", c.similarity, "what is compared; both: keys and values merge independently",
    Choices{"keys", "values", "both"});
  v("beta", c.beta, "share of the newest similarity in the threshold", Range{0, 1});
  v("into_sinks", c.into_sinks, "evicted entries may flow into the first tokens too");
}

// Runs of evicted entries flow into the entry after them, unless that is a protected one: keys and
// values become the plain mean of all.
MergerPtr Next();

// The value of each evicted entry is spread over the next `reach` ones; keys stay [CaM, ICML 2024].
// It happens with the probability of the entry's attention relative to the mean of theirs, at
// most 1. Several entries evicted at once go one after another, oldest first, so that a value may
// travel on. State: attention received so far (one column), draws made (one head number).
struct SpreadConfig {
  // Attention received so far [streaming code], or from the newest query [task code].
  enum class Attention { kAccumulated, kLast };
  int reach = 16;
  Attention attention = Attention::kAccumulated;
  bool expected = false;  // multiply by the probability instead of drawing
  int64_t seed = 0;
  score::Reduce reduce = score::Reduce::kMean;
};
MergerPtr Spread(const SpreadConfig& config);

template <class Visitor>
void Visit(SpreadConfig& c, Visitor& v) {
  v("reach", c.reach, "newer entries that take up an evicted value", Range{1, 1 << 20});
  v("attention", c.attention, "received so far, or from the newest query",
    Choices{"accumulated", "last"});
  v("expected", c.expected, "multiply by the probability of a merge instead of drawing");
  v("seed", c.seed, "of the draws", Range{0, 1e15});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

}  // namespace winnow::compression::merge
