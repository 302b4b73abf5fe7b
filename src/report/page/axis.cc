#include "report/page/axis.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace winnow::report {
namespace {

constexpr int kTicksForRounding = 6;

// The next 1, 2 or 5 times a power of ten, at least `step`.
double RoundStep(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string Shortest(double value, int precision) {
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                          std::chars_format::general, precision);
  std::string text(digits.data(), end);
  // Shorten the exponent: "1e-05" becomes "1e-5".
  const size_t e = text.find('e');
  if (e != std::string::npos) {
    size_t zeros = text.find_first_not_of("+-", e + 1);
    while (zeros + 1 < text.size() && text[zeros] == '0') text.erase(zeros, 1);
    if (text[e + 1] == '+') text.erase(e + 1, 1);
  }
  return text;
}

std::vector<Tick> LinearTicks(Range range, int n_wanted, bool whole) {
  double step = RoundStep((range.to - range.from) / std::max(n_wanted, 1));
  if (whole) step = std::max(step, 1.0);
  const double first = std::ceil(range.from / step - 1e-9);
  const double last = std::floor(range.to / step + 1e-9);
  std::vector<Tick> ticks;
  for (double i = first; i <= last; ++i) {
    const double value = i == 0 ? 0 : i * step;  // no negative zero
    ticks.push_back({value, NumberLabel(value)});
  }
  return ticks;
}

std::vector<Tick> PowerTicks(double base, Range range, int n_wanted) {
  const double first = std::ceil(std::log(range.from) / std::log(base) - 1e-9);
  const double last = std::floor(std::log(range.to) / std::log(base) + 1e-9);
  const double stride = std::max(1.0, std::ceil((last - first + 1) / std::max(n_wanted, 1)));
  std::vector<Tick> ticks;
  for (double exponent = first; exponent <= last; exponent += stride) {
    const double value = std::pow(base, exponent);
    ticks.push_back({value, NumberLabel(value)});
  }
  return ticks;
}

std::vector<Tick> LogTicks(Scale scale, Range range, int n_wanted) {
  std::vector<Tick> ticks = PowerTicks(scale == Scale::kLog2 ? 2 : 10, range, n_wanted);
  if (ticks.size() >= 3) return ticks;
  std::vector<Tick> finer;
  const double decade = std::floor(std::log10(range.from));
  for (double exponent = decade; std::pow(10, exponent) <= range.to; ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, exponent);
      if (value >= range.from * (1 - 1e-9) && value <= range.to * (1 + 1e-9)) {
        finer.push_back({value, NumberLabel(value)});
      }
    }
  }
  if (scale == Scale::kLog10 && finer.size() >= 3) return finer;
  // Less than a decade: the axis is nearly linear.
  std::vector<Tick> linear = LinearTicks(range, n_wanted, false);
  return linear.size() > ticks.size() ? linear : ticks;
}

}  // namespace

std::string NumberLabel(double value) {
  const double size = std::abs(value);
  if (size >= 1e5) {
    for (const auto& [factor, suffix] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
      if (size >= factor) return Shortest(value / factor, 4) + suffix;
    }
  }
  // Integers below 100000 need five digits; measured numbers are not that exact.
  return Shortest(value, value == std::round(value) ? 6 : 4);
}

Range AxisRange(const Axis& axis, std::span<const double> values, bool with_zero) {
  const bool log = axis.scale != Scale::kLinear;
  Range range = {INFINITY, -INFINITY};
  if (with_zero && !log) range = {0, 0};
  for (const double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    range = {std::min(range.from, value), std::max(range.to, value)};
  }
  if (range.from > range.to) range = log ? Range{1, 10} : Range{0, 1};
  if (log) {
    if (range.from == range.to) range = {range.from / 2, range.to * 2};
  } else {
    if (range.from == range.to) {
      const double pad = range.from == 0 ? 1 : std::abs(range.from) / 2;
      range = {range.from == 0 ? 0 : range.from - pad, range.to + pad};
    }
    const double step = RoundStep((range.to - range.from) / kTicksForRounding);
    range = {std::floor(range.from / step + 1e-9) * step, std::ceil(range.to / step - 1e-9) * step};
  }
  if (axis.from && (!log || *axis.from > 0)) range.from = *axis.from;
  if (axis.to && (!log || *axis.to > 0)) range.to = *axis.to;
  if (!(range.from < range.to)) range.to = log ? range.from * 10 : range.from + 1;
  return range;
}

std::vector<Tick> MakeTicks(Scale scale, Range range, int n_wanted, bool whole) {
  if (range.from > range.to) std::swap(range.from, range.to);
  if (range.from == range.to) return {};
  return scale == Scale::kLinear ? LinearTicks(range, n_wanted, whole)
                                 : LogTicks(scale, range, n_wanted);
}

bool AxisMap::Shows(double value) const {
  return std::isfinite(value) && (scale == Scale::kLinear || value > 0);
}

double AxisMap::At(double value) const {
  const double share = scale == Scale::kLinear
                           ? (value - range.from) / (range.to - range.from)
                           : std::log(value / range.from) / std::log(range.to / range.from);
  return first_px + share * (last_px - first_px);
}

}  // namespace winnow::report
