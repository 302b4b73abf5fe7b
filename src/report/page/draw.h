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
  std::span<const std::string> series;  // of the whole figure: the place of a name is its colour
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

// "c0".."c7", with "dashed" where the eight colours begin again, then "dotted".
std::string SeriesClass(size_t i);
size_t SeriesIndex(const Canvas& canvas, std::string_view name);
// A mark of its own shape for each colour, so that figures can be read without any.
void AddMark(Drawing& drawing, size_t series, double x, double y, std::string_view title);

Range ColourRange(const HeatMap& map);

// Names of series with their colours, in lines of `width` px. Nothing for fewer than two.
Drawing SeriesLegend(std::span<const std::string> names, bool lines, double width);
// A bar of colours with its numbers.
Drawing ColourLegend(const HeatMap& map, double width);

}  // namespace winnow::report
