#include "compression/methods/winnow_rest.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "gguf/tensor_type.h"

namespace winnow::compression::methods {
namespace {

// Sum over the reference rows of the weight that a key would get, as a share of each row's mass.
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

// Solves A x = b in place for a symmetric positive definite matrix and several right-hand sides.
//  a [n, n], b [n, m]
void SolveCholesky(std::vector<float>& a, std::vector<float>& b, size_t n, size_t m) {
  // Right-looking: each column of the lower factor is subtracted from the rest at once, row by row.
  std::vector<float> column(n);
  for (size_t j = 0; j < n; ++j) {
    const float pivot = std::sqrt(std::max(a[j * n + j], 1e-30f));
    a[j * n + j] = pivot;
    for (size_t i = j + 1; i < n; ++i) column[i] = a[i * n + j] /= pivot;
    for (size_t i = j + 1; i < n; ++i) {
      const float factor = column[i];
      float* row = a.data() + i * n;
      for (size_t k = j + 1; k <= i; ++k) row[k] -= factor * column[k];
    }
  }
  const auto subtract = [&](size_t from, size_t i, float factor) {
    for (size_t c = 0; c < m; ++c) b[i * m + c] -= factor * b[from * m + c];
  };
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) subtract(k, i, a[i * n + k]);
    for (size_t c = 0; c < m; ++c) b[i * m + c] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) subtract(k, i, a[k * n + i]);
    for (size_t c = 0; c < m; ++c) b[i * m + c] /= a[i * n + i];
  }
}

// Least-squares equations of some rows: weights over the stored entries, and the outputs to be
// matched.
class Equations {
 public:
  // Every fourth row is held back for the check. An object holds the rows of one kind.
  static constexpr int64_t kEvery = 4;
  enum class Which { kFitted, kHeldBack };

  Equations(const kernels::Backend& backend, const ReferenceRows& rows,
            const HeadEntriesOnHost& stored, const Targets& targets, int64_t n_before, Which which)
      : backend_(backend),
        n_entries_(static_cast<size_t>(stored.n)),
        dim_(static_cast<size_t>(stored.value_dim)) {
    std::vector<float> masses(static_cast<size_t>(rows.group) * n_entries_);
    for (int64_t row = 0; row < rows.size(); ++row) {
      if ((row % kEvery == kEvery - 1) != (which == Which::kHeldBack)) continue;
      // Entries that a row does not see are the newest, and none of them was evicted.
      const int64_t n_unseen = n_before - rows.n_visible[static_cast<size_t>(row)];
      const int64_t n_visible = std::max<int64_t>(0, stored.n - n_unseen);
      Masses(backend, rows, row, {&n_visible, 1}, stored, masses);
      for (int head = 0; head < rows.group; ++head) {
        Add(rows, targets, row, head,
            std::span(masses).subspan(static_cast<size_t>(head) * n_entries_, n_entries_));
      }
    }
  }

  size_t size() const { return missing_.size() / dim_; }

  // The residuals [query, value_dim] with these values [entry, value_dim].
  std::vector<float> Residuals(std::span<const float> values) const {
    std::vector<float> residuals(missing_.size());
    Multiply(weights_, n_entries_, values, dim_, residuals);
    for (size_t i = 0; i < residuals.size(); ++i) residuals[i] = missing_[i] - residuals[i];
    return residuals;
  }

  double Error(std::span<const float> values) const {
    double sum = 0;
    for (const double x : Residuals(values)) sum += x * x;
    return sum;
  }

  // The change of the values, [entry, value_dim]: A^T (A A^T + r I)^-1 R, computed as (A^T A + r
  // I)^-1 A^T R if there are fewer entries than equations.
  std::vector<float> Step(std::span<const float> values, double mu) const {
    const size_t n = size();
    std::vector<float> step(n_entries_ * dim_);
    double trace = 0;
    for (const double a : weights_) trace += a * a;
    if (!(trace > 0) || !std::isfinite(trace)) return step;
    const auto ridge = static_cast<float>(mu * trace / static_cast<double>(n));
    const std::vector<float> transposed = Transposed(weights_, n, n_entries_);
    std::vector<float> residuals = Residuals(values);
    const bool few_entries = n_entries_ < n;
    const size_t size = few_entries ? n_entries_ : n;
    std::vector<float> products(size * size);
    if (few_entries) {
      Multiply(transposed, n, weights_, n_entries_, products);
      Multiply(transposed, n, residuals, dim_, step);
    } else {
      Multiply(weights_, n_entries_, transposed, n, products);
    }
    for (size_t i = 0; i < size; ++i) products[i * size + i] += ridge;
    SolveCholesky(products, few_entries ? step : residuals, size, dim_);
    if (!few_entries) Multiply(transposed, n, residuals, dim_, step);
    return step;
  }

 private:
  void Add(const ReferenceRows& rows, const Targets& targets, int64_t row, int head,
           std::span<const float> masses) {
    double mass = rows.own_sum[rows.At(row, head)];
    for (const float x : masses) mass += x;
    const double inverse = mass > 0 ? 1 / mass : 0;
    const double weight = std::sqrt(rows.weights[static_cast<size_t>(row)]);
    const std::span<const float> own = rows.own(row, head);
    const float* target = targets.outputs.data() + rows.At(row, head) * dim_;
    for (size_t d = 0; d < dim_; ++d) {
      missing_.push_back(static_cast<float>(weight * (target[d] - own[d] * inverse)));
    }
    for (const float x : masses) weights_.push_back(static_cast<float>(x * inverse * weight));
  }

  // out = a b.  a [n, k], b [k, m]
  void Multiply(std::span<const float> a, size_t k, std::span<const float> b, size_t m,
                std::span<float> out) const {
    WINNOW_CHECK(k > 0);
    const auto rows = static_cast<int64_t>(a.size() / k);
    const auto inner = static_cast<int64_t>(k), cols = static_cast<int64_t>(m);
    backend_.Multiply({.a = {a.data(), rows, inner, inner},
                       .b = {b.data(), inner, cols, cols},
                       .out = {out.data(), rows, cols, cols}});
  }

  const kernels::Backend& backend_;
  const size_t n_entries_;
  const size_t dim_;
  // Both are divided by the residual norm of the row.
  std::vector<float> weights_;  // [query, entry]
  std::vector<float> missing_;  // [query, value_dim]: the target without the rows' own part
};

// Rounds values as the cache does when it stores them.
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
  plan.sources.reserve(evicted.size());
  plan.evict.reserve(evicted.size());
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

std::vector<float> RefitValues(const kernels::Backend& backend, const ReferenceRows& rows,
                               const HeadEntriesOnHost& stored, const Targets& targets,
                               int64_t n_before, kernels::TensorType value_type, double mu) {
  using Which = Equations::Which;
  if (rows.size() < Equations::kEvery) return {};  // no row to check with
  const Equations fitted(backend, rows, stored, targets, n_before, Which::kFitted);
  if (fitted.size() == 0 || stored.n == 0) return {};
  std::vector<float> values = fitted.Step(stored.values, mu);
  for (size_t i = 0; i < values.size(); ++i) values[i] += stored.values[i];
  RoundLike(value_type, stored.value_dim, values);
  const Equations held_back(backend, rows, stored, targets, n_before, Which::kHeldBack);
  if (held_back.Error(values) < held_back.Error(stored.values)) return values;
  return {};
}

}  // namespace winnow::compression::methods
