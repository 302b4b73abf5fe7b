#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

// What winnow (winnow.cc) knows of one KV head: rows of queries whose attention it tries to keep,
// and the entries they attend to. Plain numbers on the host, entries by rank.
namespace winnow::compression::methods {

// Keys and values of the entries of one KV head.
struct HeadEntriesOnHost {
  int64_t n = 0;
  int key_dim = 0;
  int value_dim = 0;
  std::vector<float> keys;    // [key_dim, n]: transposed, so that products run along the entries
  std::vector<float> values;  // [n, value_dim]
  std::vector<float> biases;  // [n]
  std::vector<int32_t> ranks = {};  // [n]: of entries in another order than that of the text

  // The entries of those ranks, in this order.
  HeadEntriesOnHost InOrder(std::span<const int32_t> order) const;
};

// Reference rows of one KV head. A row stands for all query heads of the group; [row, group] is
// called a query.
struct ReferenceRows {
  int group = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 0;
  std::vector<float> queries;      // [row, group, key_dim]
  std::vector<double> weights;     // [row]: 1 / (residual norm)^2
  std::vector<int64_t> n_visible;  // [row]: entries the row sees
  // What the row gave to entries that are not there any more (its own replay's) or are not up for
  // choice: the sum of exp(score) over them, and their part of the output, times that sum. Scores
  // are relative to `max`.
  std::vector<float> max;         // [row, group]: of all scores
  std::vector<float> own_sum;     // [row, group]: sum of exp(score - max)
  std::vector<float> own_output;  // [row, group, value_dim]: sum of exp(score - max) * value

  int64_t size() const { return static_cast<int64_t>(weights.size()); }
  void KeepLast(int64_t n_rows);
  int64_t n_queries() const { return size() * group; }
  std::span<const float> query(int64_t row, int head) const {
    return std::span(queries).subspan(At(row, head) * static_cast<size_t>(key_dim),
                                      static_cast<size_t>(key_dim));
  }
  size_t At(int64_t row, int head) const { return static_cast<size_t>(row * group + head); }
  std::span<const float> own(int64_t row, int head) const {
    return std::span(own_output)
        .subspan(At(row, head) * static_cast<size_t>(value_dim), static_cast<size_t>(value_dim));
  }
};

// [cols, rows] of [rows, cols].
std::vector<float> Transposed(std::span<const float> from, size_t rows, size_t cols);

// Rows that are worked on at a time: their masses stay in the processor's caches.
inline constexpr int64_t kRowsAtOnce = 16;

// Rows of one KV head that are to be added.
struct NewRows {
  std::span<const float> queries;      // [row, group, key_dim]
  std::span<const float> norms;        // [row] of the residual stream
  std::span<const int64_t> n_visible;  // [row]: entries it sees, entries.n at most
};
// Adds rows. Of the entries they see, those from first_own on go after this: FillOwn keeps what
// they gave as the rows' own part.
void AddRows(const NewRows& added, int64_t first_own, ReferenceRows& rows);
// Of the rows first + i that AddRows added, for every i < n_visible.size(), which may be a part of
// them: other threads may fill other parts. `entries` may be the own ones alone, with first_own 0
// and n_visible of these: rows.max is then theirs, until IncludeInMax.
void FillOwn(const kernels::Backend& backend, int64_t first, std::span<const int64_t> n_visible,
             int64_t first_own, const HeadEntriesOnHost& entries, ReferenceRows& rows);

// Of rows that FillOwn filled from their own entries alone: makes rows.max that of all scores.
// entries: the others, in the order of the text.
void IncludeInMax(const kernels::Backend& backend, const HeadEntriesOnHost& entries,
                  ReferenceRows& rows);

// exp(score - max) of the queries of rows first + i, i < n_visible.size(), for every entry, 0 where
// the row does not see it: out [query, entries.n]. `n_visible` [row] as ReferenceRows'.
void Masses(const kernels::Backend& backend, const ReferenceRows& rows, int64_t first,
            std::span<const int64_t> n_visible, const HeadEntriesOnHost& entries,
            std::span<float> out);

// What the reference rows get of all entries.
struct Targets {
  std::vector<float> outputs;   // [row, group, value_dim]
  std::vector<float> masses;    // [row, group]: sums of exp(score - max), the own part's included
  std::vector<double> weights;  // [entry]: attention received, summed over rows and group
};
// `largest`, where given, becomes the most that one query gave to each entry: [entry].
Targets MakeTargets(const kernels::Backend& backend, const ReferenceRows& rows,
                    const HeadEntriesOnHost& entries, std::vector<float>* largest = nullptr);

}  // namespace winnow::compression::methods
