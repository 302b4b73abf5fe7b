#pragma once

#include <vector>

#include "report/page/chart.h"
#include "report/record.h"

// The numbers behind figures, for files and for the page's script.
namespace winnow::report {

// Rows for a table: the panel if there are several, the series, and the values under the labels of
// their axes. A row of a heat map is one row here, with its cells named by their columns.
std::vector<Record> DataRecords(const Figure& figure);

// The panels as lists of numbers, null where nothing was measured (NaN), each with the labels of
// its axes:
//   lines      "series": [{"name", "x", "y"}]
//   bars       "categories", "series": [{"name", "values"}]
//   histogram  "edges", "counts"
//   heat map   "columns", "rows", "values": [row][column]
List PanelList(const Figure& figure);

}  // namespace winnow::report
