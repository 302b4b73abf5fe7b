#pragma once

#include <string>
#include <vector>

#include "report/page/page.h"

// Pages of results that are rows of numbers: one Record per measurement, and plots that name its
// columns. Commands that measure something need no more than this.
namespace winnow::report {

struct Column {
  std::string name;   // of a field in the rows
  std::string label;  // of the axis, with the unit; empty: the name
  Scale scale = Scale::kLinear;
};

// One figure of the rows. Rows that lack one of the columns (or hold null there) are left out.
struct Plot {
  enum class Kind {
    kLines,    // x and y are numbers; a point per row, in the order of x
    kFront,    // the same, with marks
    kBars,     // x names the groups; the mean of the rows that share a bar
    kHeatMap,  // x and y name columns and rows, ascending; `value` the colour, the mean of the rows
               // that share a cell
  };
  Kind kind = Kind::kLines;
  std::string name;  // of its files
  std::string title;
  std::string caption;
  Column x, y;
  Column value = {};                     // kHeatMap
  std::string series = {};               // a column: one colour for each value of it (not kHeatMap)
  std::string group = {};                // a column: series of one value have one colour
  std::string error = {};                // a column: of y (kFront, kBars)
  std::string link = {};                 // a column: where a cell leads, "#id" (kBars, kHeatMap)
  std::string missing = "not measured";  // what a cell of a heat map without a value says
  std::string panel = {};                // a column: one small chart for each value of it
};

// Requires: x and y (and for heat maps value) name columns. No panels where nothing was measured.
Figure MakeFigure(const Plot& plot, const std::vector<Record>& rows);

struct Results {
  std::string title;
  std::string introduction;
  Record facts;              // model, methods, machine, version, command
  std::vector<Record> rows;  // all, as they go to the files
  std::vector<Plot> plots;
  std::vector<Table> tables = {};  // summaries, shown before the plots
  bool show_rows = true;           // the rows as a table at the end
};
Page MakePage(const Results& results);

}  // namespace winnow::report
