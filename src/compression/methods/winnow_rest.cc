#include "compression/methods/winnow_rest.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "gguf/tensor_type.h"

namespace winnow::compression::methods {
namespace {

constexpr double kMaxBias = 8;

// Sum over the reference rows of the share of attention that a key gets beside everything else.
double MassOfKey(const ReferenceRows& rows, const Targets& targets, std::span<const float> key) {
  double sum = 0;
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (int head = 0; head < rows.group; ++head) {
      const std::span<const float> query = rows.query(row, head);
      double score = 0;
      for (size_t i = 0; i < key.size(); ++i) score += double{query[i]} * key[i];
      const size_t at = rows.At(row, head);
      const double mass = targets.masses[at];
      if (mass <= 0) continue;
      sum += std::exp(std::min(score * rows.scale - rows.max[at], 80.0)) / mass;
    }
  }
  return sum;
}

// Weights of one query over what is stored, and what is missing to its target.
struct Equation {
  std::vector<double> weights;   // [entry]
  std::vector<double> residual;  // [value_dim]
};

// A x = b for a symmetric positive definite matrix and several right-hand sides, in place.
//   a [n, n], b [n, m]
void SolveCholesky(std::vector<double>& a, std::vector<double>& b, size_t n, size_t m) {
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / a[j * n + j];
    }
  }
  for (size_t c = 0; c < m; ++c) {
    for (size_t i = 0; i < n; ++i) {
      double sum = b[i * m + c];
      for (size_t k = 0; k < i; ++k) sum -= a[i * n + k] * b[k * m + c];
      b[i * m + c] = sum / a[i * n + i];
    }
    for (size_t i = n; i-- > 0;) {
      double sum = b[i * m + c];
      for (size_t k = i + 1; k < n; ++k) sum -= a[k * n + i] * b[k * m + c];
      b[i * m + c] = sum / a[i * n + i];
    }
  }
}

class Refit {
 public:
  Refit(const ReferenceRows& rows, const HeadEntriesOnHost& stored, const Targets& targets,
        int64_t n_before)
      : rows_(rows), stored_(stored), targets_(targets), seen_(rows) {
    // Entries that a row does not see are the newest, and none of them was evicted.
    for (int64_t& n : seen_.n_visible) n = std::max<int64_t>(0, stored.n - (n_before - n));
    masses_.resize(static_cast<size_t>(stored.n));
  }

  static bool HeldBack(int64_t row) { return row % 4 == 3; }

  Equation Make(int64_t row, int head, std::span<const float> values) {
    const auto dim = static_cast<size_t>(rows_.value_dim);
    Masses(seen_, row, head, stored_, masses_);
    double mass = rows_.own_sum[rows_.At(row, head)];
    for (const float x : masses_) mass += x;
    const double inverse = mass > 0 ? 1 / mass : 0;
    const double weight = std::sqrt(rows_.weights[static_cast<size_t>(row)]);
    Equation equation;
    const std::span<const float> own = rows_.own(row, head);
    const float* target = targets_.outputs.data() + rows_.At(row, head) * dim;
    for (size_t i = 0; i < dim; ++i) equation.residual.push_back(target[i] - own[i] * inverse);
    for (size_t entry = 0; entry < masses_.size(); ++entry) {
      const double a = masses_[entry] * inverse;
      equation.weights.push_back(a * weight);
      if (a == 0) continue;
      for (size_t i = 0; i < dim; ++i) equation.residual[i] -= a * values[entry * dim + i];
    }
    for (double& x : equation.residual) x *= weight;
    return equation;
  }

  // Of the rows that are held back.
  double Error(std::span<const float> values) {
    double sum = 0;
    for (int64_t row = 0; row < rows_.size(); ++row) {
      if (!HeldBack(row)) continue;
      for (int head = 0; head < rows_.group; ++head) {
        for (const double x : Make(row, head, values).residual) sum += x * x;
      }
    }
    return sum;
  }

  // What to add to the values: [entry, value_dim].
  std::vector<double> Step(double mu) {
    const auto n_entries = static_cast<size_t>(stored_.n);
    const auto dim = static_cast<size_t>(rows_.value_dim);
    std::vector<Equation> equations;
    for (int64_t row = 0; row < rows_.size(); ++row) {
      if (HeldBack(row)) continue;
      for (int head = 0; head < rows_.group; ++head) {
        equations.push_back(Make(row, head, stored_.values));
      }
    }
    const size_t n = equations.size();
    std::vector<double> products(n * n), solution(n * dim);
    double trace = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (size_t e = 0; e < n_entries; ++e) {
          sum += equations[i].weights[e] * equations[j].weights[e];
        }
        products[i * n + j] = products[j * n + i] = sum;
      }
      trace += products[i * n + i];
      std::ranges::copy(equations[i].residual, solution.begin() + static_cast<ptrdiff_t>(i * dim));
    }
    std::vector<double> step(n_entries * dim);
    if (!(trace > 0) || !std::isfinite(trace)) return step;
    for (size_t i = 0; i < n; ++i) products[i * n + i] += mu * trace / static_cast<double>(n);
    SolveCholesky(products, solution, n, dim);
    for (size_t i = 0; i < n; ++i) {
      for (size_t e = 0; e < n_entries; ++e) {
        const double a = equations[i].weights[e];
        if (a == 0) continue;
        for (size_t c = 0; c < dim; ++c) step[e * dim + c] += a * solution[i * dim + c];
      }
    }
    return step;
  }

 private:
  const ReferenceRows& rows_;
  const HeadEntriesOnHost& stored_;
  const Targets& targets_;
  ReferenceRows seen_;  // with what the rows see of the stored entries
  std::vector<float> masses_;
};

// As they come back from the cache.
void RoundLike(kernels::TensorType type, int dim, std::vector<float>& values) {
  std::vector<std::byte> row(static_cast<size_t>(gguf::RowBytes(type, dim)));
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(dim)) {
    const std::span<float> one = std::span(values).subspan(at, static_cast<size_t>(dim));
    kernels::Quantize(type, one, row);
    kernels::Dequantize(type, row, one);
  }
}

}  // namespace

void AddRestRows(const ReferenceRows& rows, const HeadEntriesOnHost& entries,
                 const Targets& targets, std::span<const int32_t> evicted, int64_t n_rows,
                 std::span<const cache::Slot> order, cache::HeadPlan& plan) {
  const auto n = static_cast<int64_t>(evicted.size());
  WINNOW_CHECK(n_rows >= 1 && n_rows <= n);
  std::vector<float> key(static_cast<size_t>(entries.key_dim));
  for (int64_t i = 0; i < n_rows; ++i) {
    const auto first = static_cast<size_t>(i * n / n_rows);
    const auto end = static_cast<size_t>((i + 1) * n / n_rows);
    const std::span<const int32_t> run = evicted.subspan(first, end - first);
    double mass = 0;
    for (const int32_t rank : run) mass += targets.weights[static_cast<size_t>(rank)];
    const bool weighted = mass > 0 && std::isfinite(mass);
    std::fill(key.begin(), key.end(), 0.0f);
    for (const int32_t rank : run) {
      const double share = weighted ? targets.weights[static_cast<size_t>(rank)] / mass
                                    : 1.0 / static_cast<double>(run.size());
      const auto weight = static_cast<float>(share);
      plan.sources.push_back(
          {.row = order[static_cast<size_t>(rank)], .key_weight = weight, .value_weight = weight});
      for (size_t d = 0; d < key.size(); ++d) {
        key[d] +=
            weight * entries.keys[d * static_cast<size_t>(entries.n) + static_cast<size_t>(rank)];
      }
    }
    const cache::Slot into = order[static_cast<size_t>(run.back())];
    plan.merges.push_back({.into = into, .n_sources = static_cast<int>(run.size())});
    for (const int32_t rank : run.first(run.size() - 1)) {
      plan.evict.push_back(order[static_cast<size_t>(rank)]);
    }
    const double of_mean = MassOfKey(rows, targets, key);
    const double bias = weighted && of_mean > 0 ? std::log(mass / of_mean) : 0;
    plan.biases.push_back(
        {into,
         static_cast<float>(std::isfinite(bias) ? std::clamp(bias, -kMaxBias, kMaxBias) : 0)});
  }
}

std::vector<float> RefitValues(const ReferenceRows& rows, const HeadEntriesOnHost& stored,
                               const Targets& targets, int64_t n_before,
                               kernels::TensorType value_type, double mu) {
  Refit refit(rows, stored, targets, n_before);
  const std::vector<double> step = refit.Step(mu);
  std::vector<float> values = stored.values;
  for (size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(step[i]);
  RoundLike(value_type, stored.value_dim, values);
  if (refit.Error(values) < refit.Error(stored.values)) return values;
  return {};
}

}  // namespace winnow::compression::methods
