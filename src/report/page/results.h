#pragma once

#include <string>
#include <vector>

#include "report/page/page.h"

// Builds pages from rows of results: one Record per measurement, and plots that name its columns.
// Enough for any command that measures something.
namespace winnow::report {

struct Column {
  std::string name;   // of a field in the rows
  std::string label;  // of the axis, with the unit; empty: the name
  Scale scale = Scale::kLinear;
};

// One figure of the rows. Rows that lack one of the columns (or hold null there) are left out.
struct Plot {
  enum class Kind {
    kLines,        // x and y are numbers; a point per row, in the order of x
    kMarkedLines,  // the same, with markers
    kBars,         // x names the categories; a bar is the mean of its rows
    kHeatMap,  // x and y name columns and rows, ascending; a cell's colour is the mean of `value`
               // over its rows
  };
  Kind kind = Kind::kLines;
  std::string name;  // base name of its files
  std::string title;
  std::string caption;
  Column x, y;
  Column value = {};        // kHeatMap
  std::string series = {};  // a column: one colour for each of its values (not kHeatMap)
  std::string group = {};   // a column: series with the same value share a colour
  std::string error = {};   // a column: the error of y (kMarkedLines, kBars)
  std::string link = {};    // a column: link target of a bar or cell, "#id" (kBars, kHeatMap)
  std::string missing = "not measured";  // text of a heat map's cell without a value
  std::string panel = {};                // a column: one panel for each of its values
};

// Requires: x and y (and for heat maps value) name columns. The figure has no panels if nothing was
// measured.
Figure MakeFigure(const Plot& plot, const std::vector<Record>& rows);

struct Results {
  std::string title;
  std::string introduction;
  Record facts;              // model, methods, machine, version, command
  std::vector<Record> rows;  // all, as written to the files
  std::vector<Plot> plots;
  std::vector<Table> tables = {};  // summaries, shown before the plots
  bool show_rows = true;           // as a table at the end
};
Page MakePage(const Results& results);

}  // namespace winnow::report
