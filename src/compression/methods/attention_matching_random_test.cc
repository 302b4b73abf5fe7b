// Attention Matching against a second implementation, written from its description
// (docs/methods/semantics.md#attention-matching): plain loops in doubles, and least squares by
// singular values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/forwarding_method.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using Vec = std::vector<double>;
using Rows = std::vector<Vec>;

double Dot(const Vec& a, const Vec& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Rows Transposed(const Rows& a) {
  Rows out(a[0].size(), Vec(a.size()));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) out[j][i] = a[i][j];
  }
  return out;
}

// Singular values and vectors by one-sided Jacobi rotations: a = sum of left[k] right[k]^T, where
// the left vectors have the singular values as their lengths.
struct Svd {
  Rows left, right;

  explicit Svd(const Rows& a) : left(Transposed(a)), right(left.size(), Vec(left.size())) {
    for (size_t i = 0; i < right.size(); ++i) right[i][i] = 1;
    for (bool rotated = true; rotated;) {
      rotated = false;
      for (size_t i = 0; i < left.size(); ++i) {
        for (size_t j = 0; j < i; ++j) rotated |= Rotate(i, j);
      }
    }
  }
  bool Rotate(size_t i, size_t j) {
    const double ii = Dot(left[i], left[i]), jj = Dot(left[j], left[j]);
    const double ij = Dot(left[i], left[j]);
    if (std::fabs(ij) <= 1e-14 * std::sqrt(ii * jj) || ii == 0 || jj == 0) return false;
    const double angle = 0.5 * std::atan2(2 * ij, ii - jj);
    for (Rows* rows : {&left, &right}) {
      for (size_t k = 0; k < (*rows)[i].size(); ++k) {
        const double x = (*rows)[i][k], y = (*rows)[j][k];
        (*rows)[i][k] = std::cos(angle) * x + std::sin(angle) * y;
        (*rows)[j][k] = std::cos(angle) * y - std::sin(angle) * x;
      }
    }
    return true;
  }
  double Largest() const {
    double square = 0;
    for (const Vec& one : left) square = std::max(square, Dot(one, one));
    return std::sqrt(square);
  }
  double Smallest(size_t rank) const {
    Vec squares;
    for (const Vec& one : left) squares.push_back(Dot(one, one));
    std::ranges::sort(squares, std::greater());
    return std::sqrt(squares[rank - 1]);
  }
  // The shortest x that minimizes |a x - b|.
  Vec Solve(const Vec& b) const {
    Vec x(right.size());
    for (size_t k = 0; k < left.size(); ++k) {
      const double square = Dot(left[k], left[k]);
      if (std::sqrt(square) < 1e-9 * Largest()) continue;
      const double factor = Dot(left[k], b) / square;
      for (size_t i = 0; i < x.size(); ++i) x[i] += factor * right[k][i];
    }
    return x;
  }
};

struct Options {
  int queries = 512;
  double bound = 3;
  int steps = 2;
  bool biases = true, values = true;
};

// One KV head. `Match` reduces it to the budget.
struct PlainHead {
  std::vector<Position> positions = {};
  Rows keys = {}, values = {};
  Vec biases = {};
  double condition = 1;  // the largest of the matrices that were inverted

  size_t n() const { return positions.size(); }

  void Match(const Rows& queries, size_t budget, size_t n_protected, const Options& options) {
    Rows weights, outputs;  // [query]: exp(logit + bias - largest logit) and attention's output
    Vec mass;
    for (const Vec& query : queries) {
      double largest = -1e300, sum = 0;
      for (const Vec& key : keys) largest = std::max(largest, Dot(query, key));
      Vec row;
      for (size_t i = 0; i < n(); ++i) {
        row.push_back(std::exp(Dot(query, keys[i]) + biases[i] - largest));
        sum += row.back();
      }
      weights.push_back(row);
      mass.push_back(sum);
      outputs.push_back(Mean(row, values));
    }
    const std::vector<size_t> kept = Largest(weights, mass, budget, n_protected);
    const auto of_kept = [&](const auto& all) {
      std::decay_t<decltype(all)> some;
      for (const size_t i : kept) some.push_back(all[i]);
      return some;
    };
    for (Vec& row : weights) row = of_kept(row);
    positions = of_kept(positions);
    keys = of_kept(keys);
    values = of_kept(values);
    biases = of_kept(biases);
    if (options.biases) {
      const Vec factors = Factors(weights, mass, options);
      for (size_t i = 0; i < n(); ++i) biases[i] += std::log(factors[i]);
      for (Vec& row : weights) {
        for (size_t i = 0; i < n(); ++i) row[i] *= factors[i];
      }
    }
    if (!options.values) return;
    for (Vec& row : weights) {
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      for (double& x : row) x /= sum;
    }
    const Svd svd(weights);
    NoteCondition(svd, weights);
    Rows columns;
    for (const Vec& column : Transposed(outputs)) columns.push_back(svd.Solve(column));
    values = Transposed(columns);
  }

 private:
  static Vec Mean(const Vec& weights, const Rows& of) {
    Vec mean(of[0].size());
    for (size_t d = 0; d < mean.size(); ++d) {
      for (size_t i = 0; i < of.size(); ++i) mean[d] += weights[i] * of[i][d];
      mean[d] /= std::accumulate(weights.begin(), weights.end(), 0.0);
    }
    return mean;
  }

  // Ascending indices of the entries with the largest root mean square of their attention; the
  // newest n_protected in any case.
  static std::vector<size_t> Largest(const Rows& weights, const Vec& mass, size_t budget,
                                     size_t n_protected) {
    const size_t n = weights[0].size();
    Vec scores(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t row = 0; row < weights.size(); ++row) {
        scores[i] += std::pow(weights[row][i] / mass[row], 2);
      }
      if (i >= n - n_protected) scores[i] = INFINITY;
    }
    std::vector<size_t> kept;
    for (; kept.size() < budget; scores[kept.back()] = -1) {
      kept.push_back(static_cast<size_t>(std::ranges::max_element(scores) - scores.begin()));
    }
    std::ranges::sort(kept);
    return kept;
  }

  // e^bias: least squares within [e^-bound, e^bound], as the authors' code finds it: the unbounded
  // solution, clamped; then gradient descent in steps of 1 / (the largest singular value)^2, each
  // clamped.
  Vec Factors(const Rows& weights, const Vec& mass, const Options& options) {
    const double low = std::exp(-options.bound), high = std::exp(options.bound);
    const Svd svd(weights);
    NoteCondition(svd, weights);
    Vec factors = svd.Solve(mass);
    for (double& x : factors) x = std::clamp(x, low, high);
    for (int step = 0; step < options.steps; ++step) {
      Vec slope(factors.size());
      for (size_t row = 0; row < weights.size(); ++row) {
        const double error = Dot(weights[row], factors) - mass[row];
        for (size_t i = 0; i < slope.size(); ++i) slope[i] += error * weights[row][i];
      }
      for (size_t i = 0; i < slope.size(); ++i) {
        factors[i] = std::clamp(factors[i] - slope[i] / std::pow(svd.Largest(), 2), low, high);
      }
    }
    return factors;
  }

  void NoteCondition(const Svd& svd, const Rows& a) {
    const size_t rank = std::min(a.size(), a[0].size());
    condition = std::max(condition, svd.Largest() / svd.Smallest(rank));
  }
};

// The end of a later prompt, as runtime protects it.
class Protecting final : public ForwardingMethod {
 public:
  Protecting(MethodPtr method, int64_t n) : ForwardingMethod(std::move(method)), n_(n) {}
  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    LayerCall own = call;
    own.n_protected = n_;
    ForwardingMethod::DecideAll(own, plans);
  }

 private:
  int64_t n_;
};

struct Shape {
  uint64_t seed = 0;
  int n_kv_heads = 2, group = 1, dim = 8;
  int64_t budget = 10, n_protected = 0, n_replayed = 60;
  std::vector<int64_t> prompts = {};
};

constexpr int kLayers = 2;

// Runs the prompts one after another and compares the entries with the plain head's after each.
// Returns the largest condition.
double Compare(const Shape& s, const Options& options) {
  const auto vectors = [&](int64_t which, double size) -> testing::Vectors {
    return [=](int layer, int head, Position t) {
      std::vector<float> vector =
          testing::RandomVector({static_cast<int64_t>(s.seed), which, layer, head, t}, s.dim);
      for (float& x : vector) x *= static_cast<float>(size);
      return vector;
    };
  };
  const testing::Vectors key = vectors(1, 1), value = vectors(2, 1), query = vectors(3, 3);
  const auto wide = [](const std::vector<float>& x) { return Vec(x.begin(), x.end()); };
  const std::string parameters =
      "queries=" + std::to_string(options.queries) + ",bound=" + std::to_string(options.bound) +
      ",steps=" + std::to_string(options.steps) + ",biases=" + (options.biases ? "on" : "off") +
      ",values=" + (options.values ? "on" : "off");
  const auto method = std::make_shared<Protecting>(
      testing::Make(methods::AttentionMatching(), parameters), s.n_protected);
  Harness h(method, {.n_layers = kLayers,
                     .n_q_heads = s.n_kv_heads * s.group,
                     .n_kv_heads = s.n_kv_heads,
                     .dim = s.dim,
                     .budget = s.budget});
  h.SetKeys(key);
  h.SetValues(value);
  h.SetQueries(query);
  h.SetReplay(s.n_replayed, testing::NoWeights());
  std::vector<PlainHead> heads(static_cast<size_t>(kLayers * s.n_kv_heads));
  for (const int64_t n : s.prompts) {
    const int64_t first = h.n_seen(), end = first + n;
    h.Prefill(n, testing::NoWeights());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < s.n_kv_heads; ++head) {
        PlainHead& plain = heads[static_cast<size_t>(layer * s.n_kv_heads + head)];
        for (int64_t t = first; t < end; ++t) {
          const auto position = static_cast<Position>(t);
          plain.positions.push_back(position);
          plain.keys.push_back(wide(key(layer, head, position)));
          plain.values.push_back(wide(value(layer, head, position)));
          plain.biases.push_back(0);
        }
        if (end > s.budget) {
          // The middles of equal parts of the replay.
          const int64_t n_rows = std::min<int64_t>(options.queries, s.n_replayed);
          Rows queries;
          for (int64_t i = 0; i < n_rows; ++i) {
            const int64_t row = (2 * i + 1) * s.n_replayed / (2 * n_rows);
            for (int q_head = head * s.group; q_head < (head + 1) * s.group; ++q_head) {
              queries.push_back(wide(query(layer, q_head, static_cast<Position>(end + row))));
            }
          }
          plain.Match(queries, static_cast<size_t>(s.budget), static_cast<size_t>(s.n_protected),
                      options);
        }
        EXPECT_EQ(h.Kept(layer, head), plain.positions) << parameters << ", seed " << s.seed;
        if (h.Kept(layer, head) != plain.positions) return plain.condition;
        double largest = 1;
        for (const Vec& one : plain.values) {
          for (const double x : one) largest = std::max(largest, std::fabs(x));
        }
        for (size_t rank = 0; rank < plain.n(); ++rank) {
          if (options.biases) {
            const Slot slot = h.cache().order(layer, head)[rank];
            const Half bias = h.cache().half_column(layer, head, 0)[static_cast<size_t>(slot)];
            EXPECT_NEAR(float{bias}, plain.biases[rank], 3e-3)
                << parameters << ", seed " << s.seed << ", rank " << rank;
            plain.biases[rank] = float{bias};  // as stored: the next prompt starts from it
          }
          const Vec found = wide(h.Value(static_cast<int64_t>(rank), layer, head));
          for (size_t d = 0; d < found.size(); ++d) {
            EXPECT_NEAR(found[d], plain.values[rank][d], 1e-3 * largest)
                << parameters << ", seed " << s.seed << ", rank " << rank;
          }
          plain.values[rank] = found;
        }
      }
    }
  }
  double condition = 1;
  for (const PlainHead& plain : heads) condition = std::max(condition, plain.condition);
  return condition;
}

// The method works in floats and adds 1e-9 to the equations' diagonal (LeastSquares). The tolerance
// leaves no room for that where it is amplified much.
constexpr double kWellConditioned = 200;

TEST(AttentionMatchingRandomTest, AgreesWithPlainLoops) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    Shape s;
    s.seed = seed;
    s.n_kv_heads = 1 + draw(3);
    s.group = 1 + draw(4);
    s.dim = std::vector{8, 16}[static_cast<size_t>(draw(2))];
    s.budget = 1 + draw(14);
    s.n_replayed = 40 + draw(60);
    const int64_t n = s.budget + 1 + draw(60);
    if (seed % 3 == 0) {
      // The second prompt finds biases and fitted values.
      s.prompts = {n, 5 + draw(30)};
      s.n_protected = std::min<int64_t>(draw(4), s.budget);
    } else {
      s.prompts = {n};
    }
    Options options;
    options.queries = std::vector{512, 512, 30}[static_cast<size_t>(draw(3))];
    options.bound = std::vector{3.0, 3.0, 1.0, 0.25}[static_cast<size_t>(draw(4))];
    options.steps = std::vector{2, 2, 0, 20}[static_cast<size_t>(draw(4))];
    options.biases = draw(4) > 0;
    options.values = draw(4) > 0;
    EXPECT_LT(Compare(s, options), kWellConditioned) << "seed " << seed;
    if (HasFailure()) return;
  }
}

// Fewer reference rows than entries that stay: of many solutions the shortest.
TEST(AttentionMatchingRandomTest, FewerQueriesThanEntries) {
  for (uint64_t seed = 100; seed < 110; ++seed) {
    Shape s;
    s.seed = seed;
    s.group = 1 + static_cast<int>(seed % 2);
    s.dim = 16;
    s.budget = 30;
    s.n_replayed = 60;
    s.prompts = {50 + static_cast<int64_t>(seed % 7)};
    EXPECT_LT(Compare(s, {.queries = 6 / s.group}), kWellConditioned) << "seed " << seed;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace winnow::compression
