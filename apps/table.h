#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "report/record.h"

namespace winnow::apps {

// A table as Markdown. Wider than `width` columns (0: any width): in several tables one below the
// other, each with the first `n_keys` columns and as many others as fit. Where not even one fits,
// as a list of the fields of every row.
std::string TableWithin(std::span<const report::Record> rows, size_t n_keys, size_t width);

// Prints it, within the terminal where there is one. A pipe and a file get the whole table.
void PrintTable(std::span<const report::Record> rows, size_t n_keys);

}  // namespace winnow::apps
