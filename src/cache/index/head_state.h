#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/cache.h"
#include "cache/index/growth.h"
#include "cache/index/moves.h"
#include "cache/index/row_table.h"

namespace winnow::cache {

// A method's columns of one KV head: [column][slot].
struct StateColumns {
  std::vector<std::vector<double>> doubles;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<Half>> halves;

  void Shape(const StateShape& shape) {
    doubles.resize(static_cast<size_t>(shape.n_columns));
    floats.resize(static_cast<size_t>(shape.n_float_columns));
    halves.resize(static_cast<size_t>(shape.n_half_columns));
  }
  // Calls visit(column) for every column.
  template <class Visitor>
  void ForEach(const Visitor& visit) {
    for (std::vector<double>& column : doubles) visit(column);
    for (std::vector<float>& column : floats) visit(column);
    for (std::vector<Half>& column : halves) visit(column);
  }
};

// Everything stored per slot of a KV head except positions and order: a method's numbers, and with
// shared rows the row of each slot.
struct HeadState {
  StateColumns columns;
  std::vector<double> numbers;
  RowTable table;                  // only with shared rows
  std::vector<int32_t> n_sharing;  // [row], number of slots stored in it; only with shared rows

  // Adds n slots. With shared rows each gets a row of its own, from first_row on.
  void Append(size_t n, bool shared_rows, Slot first_row) {
    columns.ForEach([&](auto& column) {
      GrowBy(column, n);
      column.resize(column.size() + n);
    });
    if (!shared_rows) return;
    table.Append(n, first_row);
    GrowBy(n_sharing, n);
    n_sharing.resize(n_sharing.size() + n, 1);
  }
  void Move(const Moves& moves, size_t n_left) {
    columns.ForEach([&](auto& column) { moves.ApplyMoves(column, n_left); });
    if (table.size() > 0) table.ApplyMoves(moves, n_left);
  }
  // Frees unused memory.
  void ShrinkToFit() {
    columns.ForEach([](auto& column) { column.shrink_to_fit(); });
    table.ShrinkToFit();
    n_sharing.shrink_to_fit();
  }
};

}  // namespace winnow::cache
