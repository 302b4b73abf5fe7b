#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// Charts as values: what is to be seen, not how it is drawn. NaN is "not measured": a line breaks
// there, a cell or a bar stays empty.
namespace winnow::report {

enum class Scale { kLinear, kLog10, kLog2 };

struct Axis {
  std::string label;  // with its unit: "cache, MiB"
  Scale scale = Scale::kLinear;
  std::optional<double> from, to;  // default: what the data needs
  bool whole = false;              // counts and numbers of things: no fractions beside it
};

// Curves and fronts: one series for each colour of the legend.
struct LineChart {
  enum class Style { kLine, kMarkedLine, kPoints };
  struct Series {
    std::string name;
    std::vector<double> x, y;              // of equal length, in the order the line takes
    std::vector<std::string> labels = {};  // beside the points: empty, or one each
    std::vector<double> errors = {};       // of y, drawn as bars: empty, or one each
    std::string group = {};                // series of one have one colour; empty: the name
  };
  Axis x, y;
  std::vector<Series> series;
  Style style = Style::kLine;
};

// Bars side by side, a group for each category.
struct BarChart {
  struct Series {
    std::string name;
    std::vector<double> values;           // [category]
    std::vector<double> errors = {};      // of them: empty, or one each
    std::vector<std::string> links = {};  // "#id" in the page: empty, or one each
    std::string group = {};               // as LineChart's
  };
  std::string x_label;
  std::vector<std::string> categories;
  Axis y;
  std::vector<Series> series;
};

// Counts of what falls between neighbouring edges.
struct Histogram {
  Axis x, y;
  std::vector<double> edges;   // ascending, one more than counts
  std::vector<double> counts;  // drawn as they are: a share, if the axis says so
};

// Cells [row][column], row 0 on top. Names, where there are any, stand at every column (row) that
// there is room for; otherwise the columns divide x.from..x.to (default 0..n_columns) evenly.
struct HeatMap {
  Axis x, y;
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  std::vector<double> values;  // [row * n_columns + column]
  std::vector<std::string> column_names = {};
  std::vector<std::string> row_names = {};
  std::string value_label;               // of the colour bar
  std::optional<double> from, to;        // of the colours; default: what the data needs
  bool show_values = false;              // printed in cells that are large enough
  std::vector<std::string> links = {};   // [cell] "#id" in the page: empty, or one each
  std::string missing = "not measured";  // what a cell without a value says
};

using Chart = std::variant<LineChart, BarChart, Histogram, HeatMap>;

// One chart, or several of one kind that are read against each other (small multiples): their axes
// and colours then cover the same ranges, and one legend serves all.
struct Figure {
  struct Panel {
    std::string title;  // empty for a single chart
    Chart chart;
  };
  std::string name;  // of its files: letters, digits, '-', '_' and '.'
  std::string title;
  std::string caption;  // what is seen, how it was measured, what it says
  std::vector<Panel> panels;
};

}  // namespace winnow::report
