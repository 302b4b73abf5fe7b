#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// Charts as values: the data to show, not how to draw it. NaN means "not measured": a line breaks
// there, a cell or a bar stays empty.
namespace winnow::report {

enum class Scale { kLinear, kLog10, kLog2 };

struct Axis {
  std::string label;  // with its unit: "cache, MiB"
  Scale scale = Scale::kLinear;
  std::optional<double> from, to;  // default: the range of the data
  bool whole = false;              // counts: ticks at integers only
};

// Lines or points: one series for each entry of the legend.
struct LineChart {
  enum class Style { kLine, kMarkedLine, kPoints };
  struct Series {
    std::string name;
    std::vector<double> x, y;              // of equal length, in drawing order
    std::vector<std::string> labels = {};  // beside the points: empty, or one each
    std::vector<double> errors = {};       // of y, drawn as bars: empty, or one each
    std::string group = {};  // series of the same group share a colour; empty: the name
  };
  Axis x, y;
  std::vector<Series> series;
  Style style = Style::kLine;
};

// Grouped bars: one group for each category.
struct BarChart {
  struct Series {
    std::string name;
    std::vector<double> values;           // [category]
    std::vector<double> errors = {};      // of the values: empty, or one each
    std::vector<std::string> links = {};  // "#id" in the page: empty, or one each
    std::string group = {};               // as in LineChart
  };
  std::string x_label;
  std::vector<std::string> categories;
  Axis y;
  std::vector<Series> series;
};

// Counts between neighbouring edges.
struct Histogram {
  Axis x, y;
  std::vector<double> edges;   // ascending, one more than counts
  std::vector<double> counts;  // drawn as they are; may be shares if the axis says so
};

// Cells [row][column], row 0 at the top. Column (row) names, if given, are shown at every column
// (row) that has room; otherwise the columns divide x.from..x.to (default 0..n_columns) evenly.
struct HeatMap {
  Axis x, y;
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  std::vector<double> values;  // [row * n_columns + column]
  std::vector<std::string> column_names = {};
  std::vector<std::string> row_names = {};
  std::string value_label;               // of the colour bar
  std::optional<double> from, to;        // range of the colours; default: the range of the data
  bool show_values = false;              // printed in cells that are large enough
  std::vector<std::string> links = {};   // [cell] "#id" in the page: empty, or one each
  std::string missing = "not measured";  // text of a cell without a value
};

using Chart = std::variant<LineChart, BarChart, Histogram, HeatMap>;

// One chart, or several of one kind to compare (small multiples): their axes and colours then cover
// the same ranges, and all share one legend.
struct Figure {
  struct Panel {
    std::string title;  // empty for a single chart
    Chart chart;
  };
  std::string name;  // base name of its files: letters, digits, '-', '_' and '.'
  std::string title;
  std::string caption;  // what is shown, how it was measured, what follows from it
  std::vector<Panel> panels;
};

}  // namespace winnow::report
