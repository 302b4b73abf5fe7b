#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "report/record.h"

namespace winnow::apps {

// A table as Markdown. If it is wider than `width` columns (0: no limit), it is split into several
// tables, each with the first `n_keys` columns and as many others as fit. If not even one fits, it
// becomes a list of the fields of every row.
std::string TableWithin(std::span<const report::Record> rows, size_t n_keys, size_t width);

// Prints the table, within the width of a terminal. A pipe or file gets the whole table.
void PrintTable(std::span<const report::Record> rows, size_t n_keys);

}  // namespace winnow::apps
