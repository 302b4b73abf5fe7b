#include <algorithm>
#include <cmath>
#include <iterator>

#include "report/page/draw.h"
#include "report/page/palette.h"

namespace winnow::report {
namespace {

using Series = LineChart::Series;

// A screen is hardly wider than this: longer lines are thinned to the lowest and the highest point
// of each bucket of neighbouring points, so that no peak is lost.
constexpr size_t kMaxPoints = 1200;

constexpr double kMarkSize = 4;

struct Point {
  double x = 0, y = 0;
};

std::vector<Point> Thinned(std::span<const Point> points) {
  if (points.size() <= kMaxPoints) return {points.begin(), points.end()};
  std::vector<Point> thinned;
  const size_t n_buckets = kMaxPoints / 2;
  for (size_t bucket = 0; bucket < n_buckets; ++bucket) {
    const auto first = points.begin() + static_cast<ptrdiff_t>(bucket * points.size() / n_buckets);
    const auto end =
        points.begin() + static_cast<ptrdiff_t>((bucket + 1) * points.size() / n_buckets);
    const auto [low, high] =
        std::minmax_element(first, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    thinned.push_back(low < high ? *low : *high);
    if (low != high) thinned.push_back(low < high ? *high : *low);
  }
  return thinned;
}

// Splits the line at points that cannot be shown.
std::vector<std::vector<Point>> SplitSeries(const Series& series, const Frame& frame) {
  std::vector<std::vector<Point>> pieces(1);
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!frame.x.Shows(series.x[i]) || !frame.y.Shows(series.y[i])) {
      pieces.emplace_back();
      continue;
    }
    pieces.back().push_back({frame.x.At(series.x[i]), frame.y.At(series.y[i])});
  }
  return pieces;
}

void DrawLine(const Series& series, SeriesStyle style, const Frame& frame, Drawing& drawing) {
  std::string path;
  for (const std::vector<Point>& piece : SplitSeries(series, frame)) {
    char command = 'M';
    for (const Point& point : Thinned(piece)) {
      path += command + Px(point.x) + " " + Px(point.y);
      command = 'L';
    }
    // A single point between two gaps would be a line of zero length.
    if (piece.size() == 1) path += "h0.1";
  }
  if (path.empty()) return;
  drawing.body += "<path d=\"" + path + "\"" + SeriesAttributes("line", style) + "/>";
}

void DrawMarks(const Series& series, SeriesStyle style, const LineChart& chart, const Frame& frame,
               Drawing& drawing) {
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!frame.x.Shows(series.x[i]) || !frame.y.Shows(series.y[i])) continue;
    const double x = frame.x.At(series.x[i]);
    const double y = frame.y.At(series.y[i]);
    std::string title = series.name.empty() ? "" : series.name + "\n";
    title += chart.x.label + " " + NumberLabel(series.x[i]) + "\n" + chart.y.label + " " +
             NumberLabel(series.y[i]);
    if (!series.errors.empty() && series.errors[i] > 0) {
      const auto place = [&](double value) {
        const Range& range = frame.y.range;
        return frame.y.At(std::clamp(value, range.from, range.to));
      };
      AddErrorBar(drawing, style, x, place(series.y[i] - series.errors[i]),
                  place(series.y[i] + series.errors[i]));
      title += " ± " + NumberLabel(series.errors[i]);
    }
    AddMark(drawing, style, x, y, title);
    if (series.labels.empty() || series.labels[i].empty()) continue;
    drawing.Add({.x = x + 7, .y = y - 6, .text = series.labels[i], .css_class = "note"});
  }
}

}  // namespace

SeriesStyle FindStyle(const Canvas& canvas, std::string_view name) {
  const auto found = std::find(canvas.series.begin(), canvas.series.end(), name);
  const auto place = static_cast<size_t>(found - canvas.series.begin());
  return {place, place < canvas.numbers.size() ? canvas.numbers[place] : place};
}

std::string SeriesClass(size_t number) {
  constexpr const char* kRounds[] = {"", " dashed", " dotted"};
  return "c" + std::to_string(number % Palette::kColours) +
         kRounds[number / Palette::kColours % std::size(kRounds)];
}

std::string SeriesAttributes(std::string_view css_class, SeriesStyle style) {
  return " class=\"" + std::string(css_class) + " " + SeriesClass(style.number) +
         "\" data-series=\"" + std::to_string(style.place) + "\"";
}

void AddErrorBar(Drawing& drawing, SeriesStyle style, double x, double low, double high) {
  drawing.body += "<path d=\"M" + Px(x) + " " + Px(low) + "V" + Px(high) + "M" + Px(x - 3) + " " +
                  Px(low) + "h6M" + Px(x - 3) + " " + Px(high) + "h6\"" +
                  SeriesAttributes("error", style) + "/>";
}

void AddMark(Drawing& drawing, SeriesStyle style, double x, double y, std::string_view title) {
  const double s = kMarkSize;
  const auto corner = [&](char command, double dx, double dy) {
    return command + Px(x + dx) + " " + Px(y + dy);
  };
  std::string path;
  // Another shape when a colour repeats.
  switch ((style.number + style.number / Palette::kColours) % 4) {
    case 0:  // circle
      path = corner('M', -s, 0) + "a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z";
      break;
    case 1:  // square
      path = corner('M', -s + .5, -s + .5) + "h7v7h-7z";
      break;
    case 2:  // triangle
      path = corner('M', 0, -s - 1) + corner('L', s + 1, s) + corner('L', -s - 1, s) + "z";
      break;
    default:  // diamond
      path = corner('M', 0, -s - 1.5) + corner('L', s + 1.5, 0) + corner('L', 0, s + 1.5) +
             corner('L', -s - 1.5, 0) + "z";
      break;
  }
  drawing.body += "<path d=\"" + path + "\"" + SeriesAttributes("mark", style) + ">";
  if (!title.empty()) drawing.body += "<title>" + Escaped(title) + "</title>";
  drawing.body += "</path>";
}

Drawing Draw(const LineChart& chart, const Canvas& canvas) {
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    xs.insert(xs.end(), series.x.begin(), series.x.end());
    ys.insert(ys.end(), series.y.begin(), series.y.end());
    for (size_t i = 0; i < series.errors.size(); ++i) {
      // A logarithmic axis cannot show zero or less.
      const double low = series.y[i] - series.errors[i];
      if (chart.y.scale == Scale::kLinear || low > 0) ys.push_back(low);
      ys.push_back(series.y[i] + series.errors[i]);
    }
  }
  Drawing drawing;
  const Frame frame = DrawSides({.x = chart.x,
                                 .y = chart.y,
                                 .x_range = AxisRange(chart.x, xs),
                                 .y_range = AxisRange(chart.y, ys)},
                                canvas, drawing);
  // A nested <svg> clips lines that leave an axis range fixed by the caller.
  const bool clips = chart.x.from || chart.x.to || chart.y.from || chart.y.to;
  if (clips) {
    const std::string box = Px(frame.left) + " " + Px(frame.top) + " " +
                            Px(frame.right - frame.left) + " " + Px(frame.bottom - frame.top);
    drawing.body += "<svg x=\"" + Px(frame.left) + "\" y=\"" + Px(frame.top) + "\" width=\"" +
                    Px(frame.right - frame.left) + "\" height=\"" + Px(frame.bottom - frame.top) +
                    "\" viewBox=\"" + box + "\">";
  }
  for (const Series& series : chart.series) {
    if (chart.style == LineChart::Style::kPoints) break;
    DrawLine(series, FindStyle(canvas, series.name), frame, drawing);
  }
  if (clips) drawing.body += "</svg>";
  for (const Series& series : chart.series) {
    if (chart.style == LineChart::Style::kLine) break;
    DrawMarks(series, FindStyle(canvas, series.name), chart, frame, drawing);
  }
  drawing.body += "<g class=\"hover\"" + canvas.data + FrameData(frame) + "></g>";
  return drawing;
}

}  // namespace winnow::report
