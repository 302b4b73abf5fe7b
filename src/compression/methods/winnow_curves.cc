#include "compression/methods/winnow_curves.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

// x^T gram x.
double SquaredNorm(std::span<const double> x, const std::vector<float>& gram) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double row = 0;
    for (size_t j = 0; j < x.size(); ++j) row += double{gram[i * x.size() + j]} * x[j];
    sum += x[i] * row;
  }
  return sum;
}

struct Point {
  int64_t size = 0;
  double error = 0;
};

// A piece of a head's lower convex hull.
struct Segment {
  size_t head = 0;
  int64_t n = 0;
  double gain = 0;  // error less per entry
};

// The curve from its value at `first` entries on, made convex from below.
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
  // Between two sizes that were computed the error is interpolated.
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

ErrorCurve MakeErrorCurve(const ReferenceRows& rows, const HeadEntriesOnHost& entries,
                          std::span<const int32_t> order, const std::vector<bool>& fixed,
                          std::span<const std::vector<float>> gram) {
  const auto dim = static_cast<size_t>(rows.value_dim);
  ErrorCurve curve = {.sizes = CurveSizes(std::ssize(order)), .errors = {}};
  curve.errors.resize(curve.sizes.size());
  std::vector<float> masses(static_cast<size_t>(entries.n));
  // Sums up to every size that is asked for, and of all.
  std::vector<double> mass_at(curve.sizes.size());
  std::vector<double> outputs(curve.sizes.size() * dim);
  std::vector<double> sum(dim), full(dim), difference(dim);
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (int head = 0; head < rows.group; ++head) {
      Masses(rows, row, head, entries, masses);
      double mass = rows.own_sum[rows.At(row, head)];
      const std::span<const float> own = rows.own(row, head);
      sum.assign(own.begin(), own.end());
      const auto add = [&](size_t entry) {
        const double weight = masses[entry];
        if (weight == 0) return;
        mass += weight;
        const float* value = entries.values.data() + entry * dim;
        for (size_t i = 0; i < dim; ++i) sum[i] += weight * value[i];
      };
      for (size_t entry = 0; entry < fixed.size(); ++entry) {
        if (fixed[entry]) add(entry);
      }
      size_t next = 0;
      for (size_t i = 0; i < order.size(); ++i) {
        add(static_cast<size_t>(order[i]));
        if (static_cast<int64_t>(i) + 1 != curve.sizes[next]) continue;
        mass_at[next] = mass;
        std::copy(sum.begin(), sum.end(), outputs.begin() + static_cast<ptrdiff_t>(next * dim));
        ++next;
      }
      for (size_t i = 0; i < dim; ++i) full[i] = mass > 0 ? sum[i] / mass : 0;
      for (size_t at = 0; at < curve.sizes.size(); ++at) {
        const double inverse = mass_at[at] > 0 ? 1 / mass_at[at] : 0;
        for (size_t i = 0; i < dim; ++i) difference[i] = full[i] - outputs[at * dim + i] * inverse;
        curve.errors[at] += rows.weights[static_cast<size_t>(row)] *
                            SquaredNorm(difference, gram[static_cast<size_t>(head)]);
      }
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
  // Stable: a head's own segments stay in their order where they are equally steep.
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
