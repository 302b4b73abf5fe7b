#include <algorithm>
#include <cmath>

#include "report/page/draw.h"

namespace winnow::report {
namespace {

constexpr double kShareOfGroup = 0.8;  // that its bars take; the rest is the gap
constexpr double kWidestBar = 60;

void AddBar(Drawing& drawing, const Frame& frame, double x, double width, double value,
            std::string_view css_class, std::string_view title) {
  if (!frame.y.Shows(value)) return;
  const bool log = frame.y.scale != Scale::kLinear;
  const double base =
      log ? frame.bottom : frame.y.At(std::clamp(0.0, frame.y.range.from, frame.y.range.to));
  const double end = frame.y.At(std::clamp(value, frame.y.range.from, frame.y.range.to));
  drawing.AddRect(x, std::min(base, end), width, std::abs(base - end),
                  "class=\"bar " + std::string(css_class) + "\"", title);
}

}  // namespace

Drawing Draw(const BarChart& chart, const Canvas& canvas) {
  std::vector<double> values;
  for (const BarChart::Series& series : chart.series) {
    values.insert(values.end(), series.values.begin(), series.values.end());
  }
  Drawing drawing;
  const Frame frame = DrawSides({.x = {.label = chart.x_label, .from = {}, .to = {}},
                                 .y = chart.y,
                                 .x_range = {},
                                 .y_range = AxisRange(chart.y, values, /*with_zero=*/true),
                                 .x_names = chart.categories},
                                canvas, drawing);
  const double group = (frame.right - frame.left) /
                       static_cast<double>(std::max<size_t>(1, chart.categories.size()));
  const double bar =
      std::min(kWidestBar, group * kShareOfGroup /
                               static_cast<double>(std::max<size_t>(1, chart.series.size())));
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const BarChart::Series& series = chart.series[s];
    const size_t colour = SeriesIndex(canvas, series.name);
    for (size_t i = 0; i < series.values.size(); ++i) {
      const double middle = frame.left + (static_cast<double>(i) + 0.5) * group;
      const double first = middle - bar * static_cast<double>(chart.series.size()) / 2;
      const std::string title = chart.categories[i] + "\n" +
                                (series.name.empty() ? "" : series.name + " ") +
                                NumberLabel(series.values[i]);
      AddBar(drawing, frame, first + bar * static_cast<double>(s), bar, series.values[i],
             SeriesClass(colour), title);
    }
  }
  return drawing;
}

Drawing Draw(const Histogram& chart, const Canvas& canvas) {
  Drawing drawing;
  const Frame frame = DrawSides({.x = chart.x,
                                 .y = chart.y,
                                 .x_range = {chart.x.from.value_or(chart.edges.front()),
                                             chart.x.to.value_or(chart.edges.back())},
                                 .y_range = AxisRange(chart.y, chart.counts, /*with_zero=*/true)},
                                canvas, drawing);
  for (size_t i = 0; i < chart.counts.size(); ++i) {
    const double first = frame.x.At(chart.edges[i]);
    const double end = frame.x.At(chart.edges[i + 1]);
    AddBar(drawing, frame, first, end - first, chart.counts[i], "c0",
           NumberLabel(chart.edges[i]) + " to " + NumberLabel(chart.edges[i + 1]) + "\n" +
               NumberLabel(chart.counts[i]));
  }
  return drawing;
}

}  // namespace winnow::report
