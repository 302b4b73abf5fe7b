#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "compression/parameters.h"
#include "compression/parts.h"

namespace winnow::compression::budget {

using BudgeterPtr = std::shared_ptr<const Budgeter>;

// Every KV head of every layer gets the whole budget, less its protected entries.
BudgeterPtr Uniform();

// Large budgets for the first layers, small ones for the last, linearly [PyramidKV,
// arXiv:2406.02069].
struct PyramidConfig {
  // kLine: sizes on a line, which add up to the budget. kEqual: every layer keeps the same number
  // less than the one before. This number is rounded down, so the total slightly exceeds the budget
  // [authors' code].
  enum class Steps { kLine, kEqual };
  int beta = 20;  // the last layer keeps at least 1/beta of the mean
  Steps steps = Steps::kLine;
};
BudgeterPtr Pyramid(const PyramidConfig& config);

// The heads of a layer compete for its budget by score; each has a reserved share [AdaKV,
// arXiv:2407.11550].
struct CompetingConfig {
  // kReserve: every head keeps floor(alpha * B) entries; the rest goes to the best of all heads.
  // kBlend: each head gets floor(alpha * B) + (1 - alpha) * (its entries among the layer's best
  // n_kv_heads * B) [authors' code, whose rounding may miss the budget; here the entries left over
  // go to the largest fractions].
  enum class Form { kReserve, kBlend };
  double alpha = 0.2;
  Form form = Form::kReserve;
  // Multiplies a head's scores by the share that its best B have of their sum [option of the same
  // code].
  bool by_mass = false;
};
BudgeterPtr Competing(const CompetingConfig& config);

// The fewest entries that preserve the norm of the attention: the shortest list of best-scored
// entries whose norm is within `threshold` of the norm of all [ReFreeKV]. Protected entries are
// kept on top. A budget, if given, is an upper limit.
struct NormConfig {
  // kVector: the norm of the mean of the last rows. kMatrix: the Frobenius norm of all rows [paper:
  // the metric that the vector approximates].
  enum class Metric { kVector, kMatrix };
  Metric metric = Metric::kVector;
  double threshold = 0.01;     // accepted loss, as a share of the norm
  int queries = 1;             // last rows of attention (kr)
  double queries_share = 0;    // above 0: their number as a share of the tokens
  int whole_layers = 2;        // the first layers, which keep everything
  bool per_head = false;       // one length per KV head, instead of one per layer
  bool include_first = false;  // the protected entries take part in the norms
};
BudgeterPtr Norm(const NormConfig& config);

// Divides `total` in proportion to `preferences`, with no share above `max`. The excess is divided
// evenly among the others; the first ones get one more each for the remainder [CAKE,
// arXiv:2503.12491]. Preferences that are NaN or negative count as 0; if all are 0, shares are
// equal; infinite ones share equally and leave nothing to finite ones. Requires: `out` as long as
// `preferences`, not empty; total and max not negative.
void Share(std::span<const double> preferences, int64_t total, int64_t max, std::span<int64_t> out);

template <class Visitor>
void Visit(PyramidConfig& c, Visitor& v) {
  v("beta", c.beta, "steepness: the last layer keeps 1/beta of the mean, at least",
    Range{1, 1 << 20});
  v("steps", c.steps,
    "from layer to layer: on a line, which holds the budget; or equal, as the authors' code rounds",
    Choices{"line", "equal"});
}

template <class Visitor>
void Visit(CompetingConfig& c, Visitor& v) {
  v("alpha", c.alpha, "share of the budget every head keeps for itself", Range{0, 1});
  v("form", c.form,
    "reserve that share and compete for the rest, or blend it with the result of competing",
    Choices{"reserve", "blend"});
  v("by_mass", c.by_mass, "heads whose attention is concentrated compete with larger scores");
}

template <class Visitor>
void Visit(NormConfig& c, Visitor& v) {
  v("threshold", c.threshold, "share of the norm that may be lost", Range{0, 1});
  v("queries", c.queries, "last prompt tokens whose attention counts", Range{1, 1 << 20});
  v("queries_share", c.queries_share, "above 0: number of those tokens, as a share of the prompt",
    Range{0, 1});
  v("whole_layers", c.whole_layers, "first layers that keep everything", Range{0, 1 << 20});
  v("per_head", c.per_head, "a length for every KV head, instead of one for the layer");
  v("include_first", c.include_first, "the first tokens take part in the norms");
  v("metric", c.metric, "norm of the mean of the last rows of attention, or of all rows",
    Choices{"vector", "matrix"});
}

// Reaches the budget in bursts: a head above it evicts floor(share * budget) entries at once (at
// least one), as often as needed [Scissorhands, arXiv:2305.17118].
struct BurstConfig {
  double share = 0.5;
};
BudgeterPtr Burst(const BurstConfig& config);

template <class Visitor>
void Visit(BurstConfig& c, Visitor& v) {
  v("share", c.share, "share of the budget evicted at once when it is exceeded", Range{0, 1});
}

}  // namespace winnow::compression::budget
