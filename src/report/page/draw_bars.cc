#include <algorithm>
#include <cmath>

#include "report/page/draw.h"

namespace winnow::report {
namespace {

// Share of a group's width that its bars take; the rest is the gap.
constexpr double kShareOfGroup = 0.8;
constexpr double kWidestBar = 60;

void AddBar(Drawing& drawing, const Frame& frame, double x, double width, double value,
            const std::string& attributes, std::string_view title) {
  if (!frame.y.Shows(value)) return;
  const bool log = frame.y.scale != Scale::kLinear;
  const double base =
      log ? frame.bottom : frame.y.At(std::clamp(0.0, frame.y.range.from, frame.y.range.to));
  const double end = frame.y.At(std::clamp(value, frame.y.range.from, frame.y.range.to));
  drawing.AddRect(x, std::min(base, end), width, std::abs(base - end), attributes, title);
}

}  // namespace

Drawing Draw(const BarChart& chart, const Canvas& canvas) {
  std::vector<double> values;
  for (const BarChart::Series& series : chart.series) {
    values.insert(values.end(), series.values.begin(), series.values.end());
    for (size_t i = 0; i < series.errors.size(); ++i) {
      values.push_back(series.values[i] + series.errors[i]);
    }
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
    const SeriesStyle style = FindStyle(canvas, series.name);
    for (size_t i = 0; i < series.values.size(); ++i) {
      const double middle = frame.left + (static_cast<double>(i) + 0.5) * group;
      const double first = middle - bar * static_cast<double>(chart.series.size()) / 2;
      std::string title = chart.categories[i] + "\n" +
                          (series.name.empty() ? "" : series.name + " ") +
                          NumberLabel(series.values[i]);
      const double error = series.errors.empty() ? 0 : series.errors[i];
      if (error > 0) title += " ± " + NumberLabel(error);
      const double x = first + bar * static_cast<double>(s);
      const bool linked = !series.links.empty() && !series.links[i].empty();
      if (linked) drawing.body += "<a href=\"" + Escaped(series.links[i]) + "\">";
      AddBar(drawing, frame, x, bar, series.values[i], SeriesAttributes("bar", style), title);
      if (error > 0 && frame.y.Shows(series.values[i])) {
        const auto place = [&](double value) {
          return frame.y.At(std::clamp(value, frame.y.range.from, frame.y.range.to));
        };
        AddErrorBar(drawing, style, x + bar / 2, place(series.values[i] - error),
                    place(series.values[i] + error));
      }
      if (linked) drawing.body += "</a>";
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
    AddBar(drawing, frame, first, end - first, chart.counts[i], "class=\"bar c0\"",
           NumberLabel(chart.edges[i]) + " to " + NumberLabel(chart.edges[i + 1]) + "\n" +
               NumberLabel(chart.counts[i]));
  }
  return drawing;
}

}  // namespace winnow::report
