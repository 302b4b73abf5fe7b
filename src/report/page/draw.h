#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/page/axis.h"
#include "report/page/chart.h"
#include "report/page/svg.h"

// Drawing one chart. Colours and line styles are classes that chart.css defines.
namespace winnow::report {

struct Canvas {
  double width = 0;
  double height = 0;
  std::span<const std::string> series;  // names of the whole figure's
  std::span<const size_t> numbers;      // what each looks like (palette.h)
  std::string data;                     // attributes for the page's script, of the plot's own group
};

Drawing Draw(const LineChart& chart, const Canvas& canvas);
Drawing Draw(const BarChart& chart, const Canvas& canvas);
Drawing Draw(const Histogram& chart, const Canvas& canvas);
Drawing Draw(const HeatMap& chart, const Canvas& canvas);

// The area between the axes, and values to pixels.
struct Frame {
  double left = 0, top = 0, right = 0, bottom = 0;
  AxisMap x, y;
};

// What stands along the two axes. Names take the place of numbers: evenly spaced, and only as many
// as there is room for.
struct Sides {
  Axis x, y;
  Range x_range, y_range;
  std::span<const std::string> x_names = {};
  std::span<const std::string> y_names = {};  // from the top
  bool grid = true;
};
// Draws axes, ticks, labels and grid lines, and gives what is left.
Frame DrawSides(const Sides& sides, const Canvas& canvas, Drawing& drawing);

// Attributes that tell the page's script how to turn pixels into values.
std::string FrameData(const Frame& frame);

// How a series is drawn.
struct SeriesStyle {
  size_t place = 0;   // in the figure: the script hides and shows series by it
  size_t number = 0;  // colour, dashes and mark
};
SeriesStyle FindStyle(const Canvas& canvas, std::string_view name);
// "c0".."c11", with "dashed" where the colours begin again, then "dotted".
std::string SeriesClass(size_t number);
// Attributes of an element that belongs to a series: its class and what the script knows it by.
std::string SeriesAttributes(std::string_view css_class, SeriesStyle style);
// A mark of its own shape for each colour, so that figures can be read without any.
void AddMark(Drawing& drawing, SeriesStyle style, double x, double y, std::string_view title);
// A vertical bar from `low` to `high` (px), with ends.
void AddErrorBar(Drawing& drawing, SeriesStyle style, double x, double low, double high);

Range ColourRange(const HeatMap& map);

// Names of series with their colours, in lines of `width` px. Nothing for fewer than two.
Drawing SeriesLegend(const Canvas& canvas, bool lines, double width);
// A bar of colours with its numbers.
Drawing ColourLegend(const HeatMap& map, double width);

}  // namespace winnow::report
