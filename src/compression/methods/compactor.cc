// Compactor (arXiv:2507.08143): keeps keys that stand out among all keys, and entries that receive
// attention within their own chunk, both standardized over the layer:
//  score = blend * z(leverage of the keys before RoPE) + z(attention in chunks * |v|)
// Leverage is x (X'X + 0.01 I)^-1 x' of the centred keys X, in a random sketch of `sketch`
// dimensions where keys have more. In a chunk of `chunk` entries every query attends to the whole
// chunk, later entries included. blend defaults to the share of entries that is evicted.
// Implements Method rather than combining parts: z standardizes over all heads of the layer.
// Based on the authors' code in kvpress (which does not divide logits by the square root of the
// dimension).
// Differs: the last chunk may be shorter, where the code pads it with zeros that take part; entries
// from before the call have no query and get the mean (0) as the second term.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "compression/score/prompt_queries.h"
#include "compression/score/rope_angles.h"
#include "compression/score/stored_keys.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct CompactorConfig {
  int sinks = 8;      // [code]
  int recent = 4;     // [code]
  int chunk = 256;    // [code]
  int sketch = 48;    // [code]
  int kernel = 3;     // [code]
  double blend = -1;  // below 0: the share of entries that is evicted  [code]
};

template <class Visitor>
void Visit(CompactorConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, "newest tokens that always stay", Range{0, 1 << 20});
  v("chunk", c.chunk, "entries that attend to each other", Range{1, 1 << 16});
  v("sketch", c.sketch, "dimensions of the random sketch of keys", Range{1, 4096});
  v("kernel", c.kernel, "smoothing width of attention (average), odd", Range{1, score::kMaxKernel});
  v("blend", c.blend, "weight of leverage; below 0: the share of entries that is evicted",
    Range{-1, 100});
}

using Vector = std::vector<double>;

// Row-major [row][col], of one KV head.
struct Rows {
  size_t cols = 0;
  Vector values;
  size_t n() const { return cols == 0 ? 0 : values.size() / cols; }
  std::span<double> operator[](size_t row) { return std::span(values).subspan(row * cols, cols); }
  std::span<const double> operator[](size_t row) const {
    return std::span(values).subspan(row * cols, cols);
  }
};

// Reduces the columns by a product with a Gaussian random matrix that depends only on `seed`.
Rows Sketch(const Rows& rows, size_t cols, uint64_t seed) {
  if (rows.cols <= cols) return rows;
  Rng rng(seed);
  Vector random(rows.cols * cols);
  for (double& x : random) {
    const double u = 1 - rng.Uniform(), angle = 2 * M_PI * rng.Uniform();
    x = std::sqrt(-2 * std::log(u) / static_cast<double>(cols)) * std::cos(angle);
  }
  Rows out = {.cols = cols, .values = Vector(rows.n() * cols)};
  for (size_t row = 0; row < rows.n(); ++row) {
    for (size_t i = 0; i < rows.cols; ++i) {
      for (size_t j = 0; j < cols; ++j) out[row][j] += rows[row][i] * random[i * cols + j];
    }
  }
  return out;
}

// [row] x (X'X + jitter I)^-1 x', computed as |L^-1 x|^2 with the Cholesky factor L of X'X + jitter
// I.
Vector Leverage(const Rows& rows, double jitter) {
  const size_t d = rows.cols;
  Vector factor(d * d);
  for (size_t row = 0; row < rows.n(); ++row) {
    for (size_t i = 0; i < d; ++i) {
      for (size_t j = 0; j <= i; ++j) factor[i * d + j] += rows[row][i] * rows[row][j];
    }
  }
  for (size_t i = 0; i < d; ++i) {
    factor[i * d + i] += jitter;
    for (size_t j = 0; j <= i; ++j) {
      double sum = factor[i * d + j];
      for (size_t k = 0; k < j; ++k) sum -= factor[i * d + k] * factor[j * d + k];
      factor[i * d + j] = i == j ? std::sqrt(sum) : sum / factor[j * d + j];
    }
  }
  Vector out, y(d);
  for (size_t row = 0; row < rows.n(); ++row) {
    double square = 0;
    for (size_t i = 0; i < d; ++i) {
      double sum = rows[row][i];
      for (size_t k = 0; k < i; ++k) sum -= factor[i * d + k] * y[k];
      y[i] = sum / factor[i * d + i];
      square += y[i] * y[i];
    }
    out.push_back(square);
  }
  return out;
}

// Standardizes the scores over all heads: subtracts the mean, divides by the standard deviation.
void Normalise(std::vector<Vector>& heads) {
  double n = 0, mean = 0, square = 0;
  for (const Vector& head : heads) {
    for (const double x : head) mean += x, n += 1;
  }
  mean /= std::max(n, 1.0);
  for (const Vector& head : heads) {
    for (const double x : head) square += (x - mean) * (x - mean);
  }
  const double deviation = std::max(std::sqrt(square / std::max(n - 1, 1.0)), 1e-6);
  for (Vector& head : heads) {
    for (double& x : head) x = (x - mean) / deviation;
  }
}

class CompactorMethod final : public Method {
 public:
  explicit CompactorMethod(const CompactorConfig& config)
      : c_(config),
        traits_({.budget = {.min = config.sinks + config.recent + 1}}),
        select_(select::TopK()) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return score::NeedsPromptQueries(); }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode) return;
    int64_t longest = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      longest = std::max(longest, call.n_slots(head));
    }
    if (longest <= call.budget) return;
    const score::RopeAngles angles(call.backend, *call.rope);
    std::vector<Vector> leverage, attended;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      leverage.push_back(LeverageScores(call, head, angles));
      attended.push_back(AttendedSums(call, head, angles));
    }
    Normalise(leverage);
    Normalise(attended);
    const double blend = c_.blend >= 0
                             ? c_.blend
                             : 1 - static_cast<double>(call.budget) / static_cast<double>(longest);
    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      Vector& scores = leverage[static_cast<size_t>(head)];
      const Vector& second = attended[static_cast<size_t>(head)];
      // `second` covers only the call's own entries, which are the newest.
      for (double& x : scores) x *= blend;
      for (size_t i = 0; i < second.size(); ++i) {
        scores[scores.size() - second.size() + i] += second[i];
      }
      Evict(call, head, scores, plan);
    }
  }

 private:
  Region CandidateRegion(const LayerCall& call, int head) const {
    const int64_t n = call.n_slots(head);
    const int64_t begin = std::min<int64_t>(c_.sinks, n);
    return {begin, std::max(begin, n - c_.recent)};
  }

  Vector LeverageScores(const LayerCall& call, int head, const score::RopeAngles& angles) const {
    const Region region = CandidateRegion(call, head);
    const std::span<const Slot> order = call.order(head);
    const std::span<const Position> positions = call.cache.positions(call.layer, head);
    Rows keys = {.cols = static_cast<size_t>(call.cache.config().shape.key_dim), .values = {}};
    Vector mean(keys.cols);
    score::ForEachKey(call, head, region.begin, region.end,
                      [&](int64_t rank, std::span<const float> key) {
                        Vector before(key.begin(), key.end());
                        const Slot slot = order[static_cast<size_t>(rank)];
                        angles.Unrotate(before, positions[static_cast<size_t>(slot)]);
                        for (size_t i = 0; i < before.size(); ++i) {
                          mean[i] += before[i] / static_cast<double>(region.size());
                        }
                        keys.values.insert(keys.values.end(), before.begin(), before.end());
                      });
    for (size_t row = 0; row < keys.n(); ++row) {
      for (size_t i = 0; i < keys.cols; ++i) keys[row][i] -= mean[i];
    }
    const auto seed = static_cast<uint64_t>(call.layer) << 16 | static_cast<uint64_t>(head);
    return Leverage(Sketch(keys, static_cast<size_t>(c_.sketch), seed), 0.01);
  }

  // For the call's own entries in the region: the attention each receives in its chunk, averaged
  // over the query heads, times the norm of its value, smoothed over neighbours.
  Vector AttendedSums(const LayerCall& call, int head, const score::RopeAngles& angles) const {
    const Region all = CandidateRegion(call, head);
    const attention::Rows& rows = *call.rows;
    const auto n_rows = static_cast<int64_t>(rows.positions.size());
    const int64_t first_row_rank = call.n_slots(head) - n_rows;
    const Region region = {std::max(all.begin, first_row_rank), std::max(all.end, first_row_rank)};
    if (region.size() <= 0) return {};
    const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
    Rows keys = {.cols = dim, .values = {}};
    score::ForEachKey(call, head, region.begin, region.end,
                      [&](int64_t, std::span<const float> key) {
                        keys.values.insert(keys.values.end(), key.begin(), key.end());
                      });
    Vector out(keys.n());
    Vector query(dim), weights, columns;
    for (size_t first = 0; first < keys.n(); first += static_cast<size_t>(c_.chunk)) {
      const size_t end = std::min(keys.n(), first + static_cast<size_t>(c_.chunk));
      const size_t n = end - first;
      // Column-major, so that the loop over keys vectorizes.
      columns.resize(dim * n);
      for (size_t k = 0; k < n; ++k) {
        for (size_t d = 0; d < dim; ++d) columns[d * n + k] = keys[first + k][d];
      }
      for (int i = 0; i < call.group(); ++i) {
        const int q_head = head * call.group() + i;
        for (size_t j = first; j < end; ++j) {
          const auto row = static_cast<size_t>(region.begin - first_row_rank) + j;
          const std::span<const float> q = score::PromptQuery(call, row, q_head);
          query.assign(q.begin(), q.end());
          angles.Rotate(query, rows.positions[row]);
          weights.assign(n, 0.0);
          for (size_t d = 0; d < dim; ++d) {
            const double* column = columns.data() + d * n;
            for (size_t k = 0; k < n; ++k) weights[k] += query[d] * column[k];
          }
          Softmax(weights);
          for (size_t k = 0; k < n; ++k) out[first + k] += weights[k] / call.group();
        }
      }
    }
    score::ForEachRow(call, head, call.cache.values(call.layer, head), region.begin, region.end,
                      [&](int64_t rank, std::span<const float> value) {
                        out[static_cast<size_t>(rank - region.begin)] *=
                            std::sqrt(score::SquareNorm(value));
                      });
    score::Smooth(score::Pool::kAverage, c_.kernel, call.scratch.numbers, out);
    return out;
  }

  void Evict(const LayerCall& call, int head, const Vector& scores, Plan& plan) const {
    const Region region = CandidateRegion(call, head);
    const int64_t n_protected = call.n_slots(head) - region.size();
    const int64_t n_keep = std::max<int64_t>(0, call.budget - n_protected);
    if (n_keep >= region.size()) return;
    std::vector<int32_t>& ranks = call.scratch.ranks;
    ranks.clear();
    select_->Evict(
        {.call = call, .kv_head = head, .region = region, .n_keep = n_keep, .scores = scores},
        ranks);
    const std::span<const Slot> order = call.order(head);
    for (const int32_t rank : ranks) {
      plan.heads[static_cast<size_t>(head)].evict.push_back(order[static_cast<size_t>(rank)]);
    }
  }

  CompactorConfig c_;
  Traits traits_;
  select::SelectorPtr select_;
};

Result<MethodPtr> Make(const CompactorConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("compactor", c.kernel));
  return MethodPtr(std::make_shared<CompactorMethod>(c));
}

Promise Promises(const CompactorConfig& c, int64_t) {
  return {.exact = true, .sinks = c.sinks, .recent = c.recent};
}

}  // namespace

MethodEntry Compactor() {
  return Entry<CompactorConfig, Make, Promises>(
      "compactor", "outlying keys, and entries that nearby queries attend to",
      "Compactor, arXiv:2507.08143");
}

}  // namespace winnow::compression::methods
