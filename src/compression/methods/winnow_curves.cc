#include "compression/methods/winnow_curves.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

// Attention outputs of some rows over the first entries of an order, for every size of a curve.
class Prefixes {
 public:
  Prefixes(const kernels::Backend& backend, const ReferenceRows& rows,
           const HeadEntriesOnHost& entries, int64_t n_fixed, std::span<const int64_t> sizes)
      : backend_(backend),
        rows_(rows),
        entries_(entries),
        dim_(static_cast<size_t>(rows.value_dim)),
        ends_{n_fixed} {
    for (const int64_t size : sizes) ends_.push_back(n_fixed + size);
  }

  // Computes the outputs of n rows from `first` on.
  void Take(int64_t first, int64_t n) {
    first_query_ = rows_.At(first, 0);
    const int64_t n_queries = n * rows_.group;
    const auto count = static_cast<size_t>(n_queries);
    masses_.resize(count * static_cast<size_t>(entries_.n));
    Masses(backend_, rows_, first,
           std::span(rows_.n_visible).subspan(static_cast<size_t>(first), static_cast<size_t>(n)),
           entries_, masses_);
    outputs_.resize(ends_.size() * count * dim_);
    sums_.resize(ends_.size() * count);
    for (size_t at = 0; at < ends_.size(); ++at) {
      const int64_t begin = at == 0 ? 0 : ends_[at - 1];
      float* out = outputs_.data() + at * count * dim_;
      backend_.Multiply({.a = {masses_.data() + begin, n_queries, ends_[at] - begin, entries_.n},
                         .b = {entries_.values.data() + begin * rows_.value_dim, ends_[at] - begin,
                               rows_.value_dim, rows_.value_dim},
                         .out = {out, n_queries, rows_.value_dim, rows_.value_dim}});
      AddBefore(at, count, out);
      for (size_t query = 0; query < count; ++query) {
        const float* mass = masses_.data() + query * static_cast<size_t>(entries_.n);
        double sum =
            at == 0 ? double{rows_.own_sum[first_query_ + query]} : sums_[(at - 1) * count + query];
        for (int64_t i = begin; i < ends_[at]; ++i) sum += mass[i];
        sums_[at * count + query] = sum;
      }
    }
  }

  // Adds the error of a query head's output at every size, times the rows' weights, to `errors`.
  //  first, n  as in the last Take
  //  gram      [value_dim, value_dim]
  void AddErrors(int64_t first, int64_t n, int head, const std::vector<float>& gram,
                 std::span<double> errors) {
    const size_t count = static_cast<size_t>(n) * static_cast<size_t>(rows_.group);
    differences_.clear();
    for (size_t at = 1; at < ends_.size(); ++at) {
      for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
        const size_t query = row * static_cast<size_t>(rows_.group) + static_cast<size_t>(head);
        const size_t last = (ends_.size() - 1) * count + query, here = at * count + query;
        const double of_all = sums_[last] > 0 ? 1 / sums_[last] : 0;
        const double of_these = sums_[here] > 0 ? 1 / sums_[here] : 0;
        for (size_t d = 0; d < dim_; ++d) {
          differences_.push_back(static_cast<float>(outputs_[last * dim_ + d] * of_all -
                                                    outputs_[here * dim_ + d] * of_these));
        }
      }
    }
    products_.resize(differences_.size());
    const int64_t n_differences = std::ssize(differences_) / rows_.value_dim;
    backend_.Multiply({.a = {differences_.data(), n_differences, rows_.value_dim, rows_.value_dim},
                       .b = {gram.data(), rows_.value_dim, rows_.value_dim, rows_.value_dim},
                       .out = {products_.data(), n_differences, rows_.value_dim, rows_.value_dim}});
    for (size_t i = 0; i < static_cast<size_t>(n_differences); ++i) {
      double square = 0;
      for (size_t d = 0; d < dim_; ++d) {
        square += double{differences_[i * dim_ + d]} * products_[i * dim_ + d];
      }
      const size_t row = static_cast<size_t>(first) + i % static_cast<size_t>(n);
      errors[i / static_cast<size_t>(n)] += rows_.weights[row] * square;
    }
  }

 private:
  // Turns sums over one stretch of entries into sums over all entries up to its end.
  void AddBefore(size_t at, size_t count, float* out) const {
    const float* before = at == 0 ? rows_.own_output.data() + first_query_ * dim_
                                  : outputs_.data() + (at - 1) * count * dim_;
    for (size_t i = 0; i < count * dim_; ++i) out[i] += before[i];
  }

  const kernels::Backend& backend_;
  const ReferenceRows& rows_;
  const HeadEntriesOnHost& entries_;
  const size_t dim_;
  std::vector<int64_t> ends_;  // [0]: number of fixed entries; then the end of every size
  size_t first_query_ = 0;
  std::vector<float> masses_;                  // [query, entry]
  std::vector<float> outputs_;                 // [end, query, value_dim]
  std::vector<double> sums_;                   // [end, query], sums of masses
  std::vector<float> differences_, products_;  // [size, row, value_dim] of one query head
};

struct Point {
  int64_t size = 0;
  double error = 0;
};

// A piece of a head's lower convex hull.
struct Segment {
  size_t head = 0;
  int64_t n = 0;
  double gain = 0;  // reduction of the error per entry
};

// The lower convex hull of the curve from `first` entries on.
std::vector<Point> LowerHull(const ErrorCurve& curve, int64_t first) {
  std::vector<Point> hull;
  const auto add = [&](const Point& point) {
    while (hull.size() >= 2) {
      const Point& a = hull[hull.size() - 2];
      const Point& b = hull.back();
      const double left = (b.error - a.error) * static_cast<double>(point.size - a.size);
      const double right = (point.error - a.error) * static_cast<double>(b.size - a.size);
      if (left < right) break;
      hull.pop_back();
    }
    hull.push_back(point);
  };
  // The error is interpolated between two computed sizes.
  for (size_t i = 0; i < curve.sizes.size(); ++i) {
    const double error = std::isfinite(curve.errors[i]) ? curve.errors[i] : 0;
    const Point point = {curve.sizes[i], error};
    if (point.size < first) continue;
    if (point.size > first && hull.empty() && i > 0) {
      const auto before = static_cast<double>(curve.sizes[i - 1]);
      const double at =
          (static_cast<double>(first) - before) / (static_cast<double>(point.size) - before);
      const double start = std::isfinite(curve.errors[i - 1]) ? curve.errors[i - 1] : 0;
      add({first, start + at * (error - start)});
    }
    add(point);
  }
  return hull;
}

}  // namespace

std::vector<int64_t> CurveSizes(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= std::min<int64_t>(8, n); ++size) sizes.push_back(size);
  for (int i = 1; !sizes.empty() && sizes.back() < n; ++i) {
    const auto size = static_cast<int64_t>(std::round(8 * std::pow(2.0, i / 3.0)));
    sizes.push_back(std::min(size, n));
  }
  return sizes;
}

ErrorCurve MakeErrorCurve(const kernels::Backend& backend, const ReferenceRows& rows,
                          const HeadEntriesOnHost& entries, int64_t n_fixed,
                          std::span<const std::vector<float>> gram) {
  ErrorCurve curve = {.sizes = CurveSizes(entries.n - n_fixed), .errors = {}};
  curve.errors.resize(curve.sizes.size());
  if (curve.sizes.empty()) return curve;
  Prefixes prefixes(backend, rows, entries, n_fixed, curve.sizes);
  for (int64_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, rows.size() - first);
    prefixes.Take(first, n);
    for (int head = 0; head < rows.group; ++head) {
      prefixes.AddErrors(first, n, head, gram[static_cast<size_t>(head)], curve.errors);
    }
  }
  return curve;
}

std::vector<int64_t> FillCurves(std::span<const ErrorCurve> curves, int64_t floor, int64_t total) {
  std::vector<int64_t> sizes(curves.size());
  std::vector<Segment> segments;
  int64_t left = total;
  for (size_t head = 0; head < curves.size(); ++head) {
    const int64_t n = curves[head].sizes.empty() ? 0 : curves[head].sizes.back();
    sizes[head] = std::min(floor, n);
    left -= sizes[head];
    const std::vector<Point> hull = LowerHull(curves[head], std::max<int64_t>(1, sizes[head]));
    if (sizes[head] == 0 && n > 0) segments.push_back({head, 1, HUGE_VAL});
    for (size_t i = 1; i < hull.size(); ++i) {
      const int64_t width = hull[i].size - hull[i - 1].size;
      segments.push_back(
          {head, width, (hull[i - 1].error - hull[i].error) / static_cast<double>(width)});
    }
  }
  WINNOW_CHECK(left >= 0);
  // Stable: equally steep segments of a head keep their order.
  std::ranges::stable_sort(
      segments, [](const Segment& a, const Segment& b) { return ScoreLess(b.gain, a.gain); });
  for (const Segment& segment : segments) {
    const int64_t n = std::min(segment.n, left);
    sizes[segment.head] += n;
    left -= n;
  }
  return sizes;
}

}  // namespace winnow::compression::methods
