#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

// winnow's (winnow.cc) view of one KV head: reference rows, whose attention output it tries to
// preserve, and the entries they attend to. Plain numbers on the host, entries by rank.
namespace winnow::compression::methods {

// Keys and values of the entries of one KV head.
struct HeadEntriesOnHost {
  int64_t n = 0;
  int key_dim = 0;
  int value_dim = 0;
  std::vector<float> keys;    // [key_dim, n]: transposed, so that products run along the entries
  std::vector<float> values;  // [n, value_dim]
  std::vector<float> biases;  // [n]
  std::vector<int32_t> ranks = {};  // [n], or empty: in rank order

  // The entries of these ranks, in this order.
  HeadEntriesOnHost InOrder(std::span<const int32_t> order) const;
};

// Reference rows of one KV head. A row covers all query heads of the group; a pair [row, head of
// the group] is called a query.
struct ReferenceRows {
  int group = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 0;
  std::vector<float> queries;      // [row, group, key_dim]
  std::vector<double> weights;     // [row]: 1 / (residual norm)^2
  std::vector<int64_t> n_visible;  // [row]: number of entries that it sees, the oldest ones
  // The own part: attention to entries that are not stored any more (the replay's own) or not up
  // for choice, as sums of exp(score) and exp(score) * value. Scores are relative to `max`.
  std::vector<float> max;         // [row, group]: largest of all scores
  std::vector<float> own_sum;     // [row, group]: sum of exp(score - max)
  std::vector<float> own_output;  // [row, group, value_dim]: sum of exp(score - max) * value

  int64_t size() const { return static_cast<int64_t>(weights.size()); }
  // Drops all rows but the last n_rows.
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

// Transposes [rows, cols] to [cols, rows].
std::vector<float> Transposed(std::span<const float> from, size_t rows, size_t cols);

// Rows processed at a time: their masses stay in the CPU's caches.
inline constexpr int64_t kRowsAtOnce = 16;

// Rows to add to those of one KV head.
struct NewRows {
  std::span<const float> queries;      // [row, group, key_dim]
  std::span<const float> norms;        // [row] of the residual stream
  std::span<const int64_t> n_visible;  // [row]: entries that it sees, at most entries.n
};
// Adds rows. Of the entries they see, those from first_own on will be dropped: FillOwn keeps the
// attention to them as the rows' own part.
void AddRows(const NewRows& added, int64_t first_own, ReferenceRows& rows);
// Computes the own part of rows first + i, i < n_visible.size(), that AddRows added. Different rows
// may be filled by different threads. `entries` may hold only the own entries, with first_own 0 and
// n_visible counted among them; rows.max then covers only these until IncludeInMax.
void FillOwn(const kernels::Backend& backend, int64_t first, std::span<const int64_t> n_visible,
             int64_t first_own, const HeadEntriesOnHost& entries, ReferenceRows& rows);

// For rows that FillOwn filled from their own entries alone: extends rows.max to all scores.
// entries: the others, in rank order.
void IncludeInMax(const kernels::Backend& backend, const HeadEntriesOnHost& entries,
                  ReferenceRows& rows);

// exp(score - max) of the queries of rows first + i, i < n_visible.size(), for every entry; 0 where
// the row does not see it: out [query, entries.n]. n_visible: [row], as in ReferenceRows.
void Masses(const kernels::Backend& backend, const ReferenceRows& rows, int64_t first,
            std::span<const int64_t> n_visible, const HeadEntriesOnHost& entries,
            std::span<float> out);

// Attention of the reference rows over all entries, own parts included.
struct Targets {
  std::vector<float> outputs;   // [row, group, value_dim]
  std::vector<float> masses;    // [row, group]: sums of exp(score - max)
  std::vector<double> weights;  // [entry]: attention received, summed over rows and group
};
// `largest`, if given, becomes the largest weight that one query gave to each entry: [entry].
Targets MakeTargets(const kernels::Backend& backend, const ReferenceRows& rows,
                    const HeadEntriesOnHost& entries, std::vector<float>* largest = nullptr);

}  // namespace winnow::compression::methods
