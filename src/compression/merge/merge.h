#pragma once

#include <cstdint>
#include <memory>

#include "compression/parameters.h"
#include "compression/parts.h"
#include "compression/score/score.h"

namespace winnow::compression::merge {

using MergerPtr = std::shared_ptr<const Merger>;

// Merges each evicted entry into the most similar kept one, if it is similar enough, and drops it
// otherwise [D2O, arXiv:2406.13035, section 3.2]. Similar enough: at least tau, which is the mean
// similarity of the first entries evicted, and a running mean from then on. When several entries
// are evicted later at once, they update tau oldest first; similarities are those of the keys
// before any of these merges. State: tau per KV head.
struct NearestConfig {
  // The weight of an evicted entry with similarity u: exp(u), against exp(1) for the kept entry
  // [Eq. 11]; u as a factor of the vector, then the plain mean [code]; the plain mean [ablation].
  enum class Weighting { kExponential, kCode, kAverage };
  // The vectors compared. kBoth: keys and values each find their own target and have their own tau.
  enum class Similarity { kKeys, kValues, kBoth };
  Weighting weighting = Weighting::kExponential;
  Similarity similarity = Similarity::kKeys;
  double beta = 0.5;  // share of the newest similarity in tau
  // Whether entries before the region, attention sinks, can be targets [paper]. Merging into a sink
  // changes nearly every later output.
  bool into_sinks = true;
};
MergerPtr Nearest(const NearestConfig& config);

template <class Visitor>
void Visit(NearestConfig& c, Visitor& v) {
  v("merge", c.weighting, "weight of an evicted entry of similarity u: exp(u), u, or equal",
    Choices{"exp", "code", "average"});
  v("similarity", c.similarity, "vectors compared; both: keys and values merge independently",
    Choices{"keys", "values", "both"});
  v("beta", c.beta, "share of the newest similarity in the threshold", Range{0, 1});
  v("into_sinks", c.into_sinks, "evicted entries may merge into the first tokens too");
}

// Merges each run of evicted entries into the entry after it, unless that one is protected: keys
// and values become the plain mean of all.
MergerPtr Next();

// Spreads the value of each evicted entry over the next `reach` entries; keys stay [CaM, ICML
// 2024]. It does so with probability min(1, the entry's attention / the mean attention of those
// entries). Several entries evicted at once are handled one after another, oldest first, so that a
// value may be passed on. State: attention received so far (one column), number of draws (one head
// number).
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
  v("reach", c.reach, "newer entries that receive an evicted value", Range{1, 1 << 20});
  v("attention", c.attention, "attention received so far, or from the newest query",
    Choices{"accumulated", "last"});
  v("expected", c.expected, "multiply by the probability of a merge instead of drawing");
  v("seed", c.seed, "seed of the draws", Range{0, 1e15});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

}  // namespace winnow::compression::merge
