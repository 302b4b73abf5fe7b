#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "report/page/axis.h"
#include "report/page/chart.h"
#include "report/page/svg.h"

// Draws one chart. Colours and line styles are classes defined in chart.css.
namespace winnow::report {

struct Canvas {
  double width = 0;
  double height = 0;
  std::span<const std::string> series;  // series names of the whole figure
  std::span<const size_t> numbers;      // the style number of each (palette.h)
  std::string data;                     // attributes for the page's script, on the plot's own group
};

Drawing Draw(const LineChart& chart, const Canvas& canvas);
Drawing Draw(const BarChart& chart, const Canvas& canvas);
Drawing Draw(const Histogram& chart, const Canvas& canvas);
Drawing Draw(const HeatMap& chart, const Canvas& canvas);

// The plot area between the axes, with the maps from values to pixels.
struct Frame {
  double left = 0, top = 0, right = 0, bottom = 0;
  AxisMap x, y;
};

// Contents of the two axes. Names, if given, replace the numbers: evenly spaced, and only as many
// as fit.
struct Sides {
  Axis x, y;
  Range x_range, y_range;
  std::span<const std::string> x_names = {};
  std::span<const std::string> y_names = {};  // from the top
  bool grid = true;
};
// Draws axes, ticks, labels and grid lines; returns the plot area that remains.
Frame DrawSides(const Sides& sides, const Canvas& canvas, Drawing& drawing);

// Attributes that tell the page's script how to turn pixels into values.
std::string FrameData(const Frame& frame);

// Identity and look of a series.
struct SeriesStyle {
  size_t place = 0;   // index in the figure, by which the script hides and shows series
  size_t number = 0;  // colour, dashes and marker
};
SeriesStyle FindStyle(const Canvas& canvas, std::string_view name);
// "c0".."c11"; when the colours repeat, with "dashed", then "dotted".
std::string SeriesClass(size_t number);
// Attributes of an element that belongs to a series: its class and the index for the script.
std::string SeriesAttributes(std::string_view css_class, SeriesStyle style);
// Adds a marker. Four shapes alternate over the colours, so that series can be told apart without
// colour.
void AddMark(Drawing& drawing, SeriesStyle style, double x, double y, std::string_view title);
// A vertical bar from `low` to `high` (px) with end caps.
void AddErrorBar(Drawing& drawing, SeriesStyle style, double x, double low, double high);

Range ColourRange(const HeatMap& map);

// Series names with their colours, in lines of `width` px. Empty for fewer than two series.
Drawing SeriesLegend(const Canvas& canvas, bool lines, double width);
// A colour bar with its numbers.
Drawing ColourLegend(const HeatMap& map, double width);

}  // namespace winnow::report
