#include "report/page/figure.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "report/page/data.h"
#include "report/page/page.h"

namespace winnow::report {
namespace {

constexpr double kWide = 900;    // px, of a figure on a laptop and in print
constexpr double kNarrow = 360;  // on a phone
constexpr double kPanel = 280;   // minimum width of a panel beside others
constexpr double kGap = 16;
constexpr double kTitle = 22;
constexpr int kMaxPanelsInRow = 3;

// Fixes the axis to `range`, except for ends that the caller has set.
void Fix(Axis& axis, Range range) {
  if (!axis.from) axis.from = range.from;
  if (!axis.to) axis.to = range.to;
}

template <class T>
void Gather(std::vector<double>& all, const std::vector<T>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

template <class Type>
std::vector<Type*> ChartsOfType(Figure& figure) {
  std::vector<Type*> charts;
  for (Figure::Panel& panel : figure.panels) {
    if (auto* chart = std::get_if<Type>(&panel.chart)) charts.push_back(chart);
  }
  return charts;
}

void ShareLines(Figure& figure) {
  std::vector<double> xs, ys;
  const auto charts = ChartsOfType<LineChart>(figure);
  for (const LineChart* chart : charts) {
    for (const LineChart::Series& series : chart->series) {
      Gather(xs, series.x);
      Gather(ys, series.y);
      for (size_t i = 0; i < series.errors.size(); ++i)
        ys.push_back(series.y[i] + series.errors[i]);
    }
  }
  for (LineChart* chart : charts) {
    Fix(chart->x, AxisRange(chart->x, xs));
    Fix(chart->y, AxisRange(chart->y, ys));
  }
}

void ShareBars(Figure& figure) {
  std::vector<double> ys;
  const auto charts = ChartsOfType<BarChart>(figure);
  for (const BarChart* chart : charts) {
    for (const BarChart::Series& series : chart->series) {
      Gather(ys, series.values);
      for (size_t i = 0; i < series.errors.size(); ++i) {
        ys.push_back(series.values[i] + series.errors[i]);
      }
    }
  }
  for (BarChart* chart : charts) Fix(chart->y, AxisRange(chart->y, ys, /*with_zero=*/true));
}

void ShareHistograms(Figure& figure) {
  std::vector<double> xs, ys;
  const auto charts = ChartsOfType<Histogram>(figure);
  for (const Histogram* chart : charts) {
    xs.push_back(chart->edges.front());
    xs.push_back(chart->edges.back());
    Gather(ys, chart->counts);
  }
  if (charts.empty()) return;
  const auto [low, high] = std::minmax_element(xs.begin(), xs.end());
  for (Histogram* chart : charts) {
    Fix(chart->x, {*low, *high});
    Fix(chart->y, AxisRange(chart->y, ys, /*with_zero=*/true));
  }
}

void ShareColourRange(Figure& figure) {
  std::vector<double> values;
  const auto maps = ChartsOfType<HeatMap>(figure);
  for (const HeatMap* map : maps) Gather(values, map->values);
  for (HeatMap* map : maps) {
    const Range range = AxisRange({.label = "", .from = map->from, .to = map->to}, values);
    map->from = range.from;
    map->to = range.to;
  }
}

double ChartHeight(const Chart& chart, double width, bool beside_others) {
  double height = std::clamp(width * 0.5, 240.0, 380.0);
  if (beside_others) height = 230;
  const auto* map = std::get_if<HeatMap>(&chart);
  if (map == nullptr) return height;
  // Few rows need little height; named rows need enough for their names.
  const auto n_rows = static_cast<double>(map->n_rows);
  if (map->row_names.empty()) return std::clamp(70 + 4 * n_rows, 150.0, height);
  return std::clamp(70 + 24 * n_rows, 150.0, std::max(height, std::min(130 + 16 * n_rows, 900.0)));
}

Drawing DrawLegend(const Figure& figure, const Canvas& canvas, double width) {
  const Chart& first = figure.panels.front().chart;
  if (const auto* map = std::get_if<HeatMap>(&first)) return ColourLegend(*map, width);
  return SeriesLegend(canvas, std::holds_alternative<LineChart>(first), width);
}

void CheckFigure(const Figure& figure) {
  WINNOW_CHECK(!figure.panels.empty());
  for (const Figure::Panel& panel : figure.panels) {
    WINNOW_CHECK(panel.chart.index() == figure.panels.front().chart.index());
    if (const auto* map = std::get_if<HeatMap>(&panel.chart)) {
      WINNOW_CHECK(map->n_rows > 0 && map->n_columns > 0);
      WINNOW_CHECK(static_cast<int64_t>(map->values.size()) == map->n_rows * map->n_columns);
      WINNOW_CHECK(map->links.empty() || map->links.size() == map->values.size());
    }
    if (const auto* histogram = std::get_if<Histogram>(&panel.chart)) {
      WINNOW_CHECK(histogram->edges.size() == histogram->counts.size() + 1);
    }
    if (const auto* lines = std::get_if<LineChart>(&panel.chart)) {
      for (const LineChart::Series& series : lines->series) {
        WINNOW_CHECK(series.x.size() == series.y.size());
        WINNOW_CHECK(series.errors.empty() || series.errors.size() == series.y.size());
      }
    }
    if (const auto* bars = std::get_if<BarChart>(&panel.chart)) {
      for (const BarChart::Series& series : bars->series) {
        WINNOW_CHECK(series.values.size() == bars->categories.size());
        WINNOW_CHECK(series.errors.empty() || series.errors.size() == series.values.size());
        WINNOW_CHECK(series.links.empty() || series.links.size() == series.values.size());
      }
    }
  }
}

}  // namespace

std::vector<std::string> SeriesNames(const Figure& figure) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Figure::Panel& panel : figure.panels) {
    if (const auto* lines = std::get_if<LineChart>(&panel.chart)) {
      for (const LineChart::Series& series : lines->series) add(series.name);
    } else if (const auto* bars = std::get_if<BarChart>(&panel.chart)) {
      for (const BarChart::Series& series : bars->series) add(series.name);
    }
  }
  return names;
}

Figure WithSharedRanges(Figure figure) {
  CheckFigure(figure);
  if (figure.panels.size() == 1) return figure;
  ShareLines(figure);
  ShareBars(figure);
  ShareHistograms(figure);
  ShareColourRange(figure);
  return figure;
}

Drawing DrawFigure(const Figure& original, double width, const Palette& palette) {
  const Figure figure = WithSharedRanges(original);
  const std::vector<std::string> names = SeriesNames(figure);
  const auto n_panels = static_cast<int>(figure.panels.size());
  const int n_in_row = std::clamp(static_cast<int>((width + kGap) / (kPanel + kGap)), 1,
                                  std::min(n_panels, kMaxPanelsInRow));
  const double panel_width = (width - kGap * (n_in_row - 1)) / n_in_row;

  std::vector<size_t> numbers;
  for (const std::string& name : names) numbers.push_back(palette.StyleNumber(name));
  Drawing drawing = DrawLegend(figure, {.series = names, .numbers = numbers, .data = ""}, width);
  drawing.width = width;
  if (drawing.height > 0) drawing.height += 8;
  for (int first = 0; first < n_panels; first += n_in_row) {
    double height = 0;
    for (int i = first; i < std::min(first + n_in_row, n_panels); ++i) {
      const Figure::Panel& panel = figure.panels[static_cast<size_t>(i)];
      const Canvas canvas = {.width = panel_width,
                             .height = ChartHeight(panel.chart, panel_width, n_in_row > 1),
                             .series = names,
                             .numbers = numbers,
                             .data = " data-panel=\"" + std::to_string(i) + "\""};
      Drawing plot;
      if (!panel.title.empty()) {
        plot.height = kTitle;
        const std::string title = Shortened(panel.title, panel_width);
        plot.Add({.x = 0, .y = kTitle - 8, .text = title, .css_class = "title"});
      }
      plot.Append(std::visit([&](const auto& chart) { return Draw(chart, canvas); }, panel.chart));
      drawing.Place(plot, (i - first) * (panel_width + kGap), drawing.height);
      height = std::max(height, plot.height);
    }
    drawing.height += height + (first + n_in_row < n_panels ? kGap : 0);
  }
  return drawing;
}

std::string FigureHtml(const Figure& figure, const Palette& palette) {
  const std::string label = figure.title + (figure.caption.empty() ? "" : ". " + figure.caption);
  std::string html = "<figure id=\"" + Escaped(figure.name) + "\">\n<h3>" + Escaped(figure.title) +
                     "</h3>\n" + InlineSvg(DrawFigure(figure, kWide, palette), "wide", label) +
                     InlineSvg(DrawFigure(figure, kNarrow, palette), "narrow", label);
  if (!figure.caption.empty()) {
    html += "<figcaption>" + Escaped(figure.caption) + "</figcaption>\n";
  }
  // The values that the script shows at the pointer.
  if (std::holds_alternative<LineChart>(figure.panels.front().chart)) {
    html += JsonElement("points", PanelList(figure));
  }
  return html + "</figure>\n";
}

std::string ToSvg(const Figure& figure) {
  Palette palette;
  palette.Add(figure);
  return ToSvg(figure, palette);
}

std::string ToSvg(const Figure& figure, const Palette& palette) {
  const std::string label = figure.title.empty() ? figure.name : figure.title;
  return SvgFile(DrawFigure(figure, kWide, palette), label);
}

}  // namespace winnow::report
