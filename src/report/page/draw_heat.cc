#include <algorithm>
#include <cmath>

#include "report/page/colours.h"
#include "report/page/draw.h"
#include "report/page/png.h"

namespace winnow::report {
namespace {

constexpr int64_t kMaxRects = 1000;  // with more cells, the map is drawn as one image
// An image needs no more pixels than a screen shows; cells that share a pixel are averaged.
constexpr int64_t kMaxColumns = 640;
constexpr int64_t kMaxRows = 320;

double FractionOfRange(double value, Range range) {
  return std::isnan(value) ? value : (value - range.from) / (range.to - range.from);
}

std::string TickName(const std::vector<std::string>& names, const Axis& axis, int64_t i,
                     int64_t n) {
  if (!names.empty()) return names[static_cast<size_t>(i)];
  const double from = axis.from.value_or(0);
  const double to = axis.to.value_or(static_cast<double>(n));
  return NumberLabel(from + (to - from) * static_cast<double>(i) / static_cast<double>(n));
}

// The number to print in a cell of this width: in full, or with two digits; empty if neither fits.
std::string NumberWithin(double value, double width) {
  const double digit = value == 0 ? 1 : std::pow(10, std::floor(std::log10(std::abs(value))) - 1);
  for (const double shown : {value, std::round(value / digit) * digit}) {
    std::string number = NumberLabel(shown);
    if (TextWidth(number) + 4 <= width) return number;
  }
  return "";
}

// CSS classes of the text on a cell, for the light and the dark scheme.
std::string TextClass(double share) {
  const auto is_dark = [&](Scheme scheme) { return IsDark(HeatColour(share, scheme)); };
  return std::string(is_dark(Scheme::kLight) ? "on-dark" : "on-light") +
         (is_dark(Scheme::kDark) ? " then-on-dark" : " then-on-light");
}

void DrawCells(const HeatMap& map, Range range, const Frame& frame, Drawing& drawing) {
  const double w = (frame.right - frame.left) / static_cast<double>(map.n_columns);
  const double h = (frame.bottom - frame.top) / static_cast<double>(map.n_rows);
  // A gap of one pixel between large cells; none between small cells, which it would cover.
  const double gap = std::min(w, h) > 8 ? 1 : 0;
  const std::string x_name = map.x.label.empty() ? "" : map.x.label + " ";
  const std::string y_name = map.y.label.empty() ? "" : map.y.label + " ";
  for (int64_t row = 0; row < map.n_rows; ++row) {
    for (int64_t column = 0; column < map.n_columns; ++column) {
      const double value = map.values[static_cast<size_t>(row * map.n_columns + column)];
      const double x = frame.left + static_cast<double>(column) * w;
      const double y = frame.top + static_cast<double>(row) * h;
      const std::string place = x_name + TickName(map.column_names, map.x, column, map.n_columns) +
                                "\n" + y_name + TickName(map.row_names, map.y, row, map.n_rows) +
                                "\n";
      if (std::isnan(value)) {
        drawing.AddRect(x + .5, y + .5, std::max(0.0, w - gap - 1), std::max(0.0, h - gap - 1),
                        "class=\"missing\"", place + map.missing);
        continue;
      }
      const std::string title = place + map.value_label + " " + NumberLabel(value);
      const double share = FractionOfRange(value, range);
      const std::string* link = map.links.empty()
                                    ? nullptr
                                    : &map.links[static_cast<size_t>(row * map.n_columns + column)];
      const bool linked = link != nullptr && !link->empty();
      if (linked) drawing.body += "<a href=\"" + Escaped(*link) + "\">";
      drawing.AddRect(x, y, w - gap, h - gap, HeatFill(share), title);
      const std::string number = map.show_values && h >= 15 ? NumberWithin(value, w) : "";
      const std::string ink = TextClass(share);
      if (!number.empty())
        drawing.Add({.x = x + (w - gap) / 2,
                     .y = y + (h - gap) / 2 + 4,
                     .text = number,
                     .anchor = Drawing::Anchor::kMiddle,
                     .css_class = ink});
      if (linked) drawing.body += "</a>";
    }
  }
}

void DrawPicture(const HeatMap& map, Range range, const Frame& frame, Drawing& drawing) {
  const int64_t width = std::min(map.n_columns, kMaxColumns);
  const int64_t height = std::min(map.n_rows, kMaxRows);
  std::vector<double> sums(static_cast<size_t>(width * height), 0);
  std::vector<int64_t> counts(sums.size(), 0);
  for (int64_t row = 0; row < map.n_rows; ++row) {
    for (int64_t column = 0; column < map.n_columns; ++column) {
      const double value = map.values[static_cast<size_t>(row * map.n_columns + column)];
      if (std::isnan(value)) continue;
      const auto pixel =
          static_cast<size_t>(row * height / map.n_rows * width + column * width / map.n_columns);
      sums[pixel] += value;
      ++counts[pixel];
    }
  }
  std::vector<uint8_t> pixels(sums.size());
  for (size_t i = 0; i < pixels.size(); ++i) {
    const double value = counts[i] == 0 ? NAN : sums[i] / static_cast<double>(counts[i]);
    pixels[i] = HeatIndex(FractionOfRange(value, range));
  }
  // One image for each scheme; the style sheet shows one of them.
  for (const Scheme scheme : {Scheme::kLight, Scheme::kDark}) {
    drawing.body += std::string("<image class=\"") +
                    (scheme == Scheme::kLight ? "in-light" : "in-dark") + "\" x=\"" +
                    Px(frame.left) + "\" y=\"" + Px(frame.top) + "\" width=\"" +
                    Px(frame.right - frame.left) + "\" height=\"" + Px(frame.bottom - frame.top) +
                    "\" preserveAspectRatio=\"none\" href=\"data:image/png;base64," +
                    Base64(IndexedPng(width, height, pixels, HeatPalette(scheme))) + "\"/>";
  }
}

}  // namespace

Range ColourRange(const HeatMap& map) {
  return AxisRange({.label = "", .from = map.from, .to = map.to}, map.values);
}

Drawing Draw(const HeatMap& map, const Canvas& canvas) {
  Drawing drawing;
  const Range x_range = {map.x.from.value_or(0),
                         map.x.to.value_or(static_cast<double>(map.n_columns))};
  // Row 0 is on top: the axis runs downwards.
  const Range y_range = {map.y.to.value_or(static_cast<double>(map.n_rows)),
                         map.y.from.value_or(0)};
  const Frame frame = DrawSides({.x = map.x,
                                 .y = map.y,
                                 .x_range = x_range,
                                 .y_range = y_range,
                                 .x_names = map.column_names,
                                 .y_names = map.row_names,
                                 .grid = false},
                                canvas, drawing);
  const Range range = ColourRange(map);
  if (map.n_rows * map.n_columns <= kMaxRects) {
    DrawCells(map, range, frame, drawing);
  } else {
    DrawPicture(map, range, frame, drawing);
  }
  return drawing;
}

}  // namespace winnow::report
