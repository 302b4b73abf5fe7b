#pragma once

#include <span>
#include <string>
#include <vector>

#include "report/page/chart.h"

// Maps values to pixels and chooses the ticks of an axis.
namespace winnow::report {

struct Range {
  double from = 0;
  double to = 1;
  bool operator==(const Range&) const = default;
};

// The smallest range that covers all finite values (on logarithmic axes: the positive ones) and, if
// `with_zero`, zero; never empty. Ends that the axis fixes stay; linear axes grow to the next tick.
Range AxisRange(const Axis& axis, std::span<const double> values, bool with_zero = false);

struct Tick {
  double value = 0;
  std::string label;
  bool operator==(const Tick&) const = default;
};
// Round numbers in the range: 1, 2 or 5 times a power of ten; on kLog2 axes powers of two. About
// `n_wanted` of them, at least two unless the range holds fewer; none if the range is empty. A
// range may run downwards. `whole`: linear ticks at integers only.
std::vector<Tick> MakeTicks(Scale scale, Range range, int n_wanted, bool whole = false);

// A number in a short form for charts: "0.25", "2048", "150k", "3M", "1e-5".
std::string NumberLabel(double value);

// Maps values to pixels along one axis.
struct AxisMap {
  Scale scale = Scale::kLinear;
  Range range;
  double first_px = 0;  // of range.from
  double last_px = 0;   // of range.to

  bool Shows(double value) const;  // finite, and positive where the scale needs it
  double At(double value) const;   // Requires: Shows(value)
};

}  // namespace winnow::report
