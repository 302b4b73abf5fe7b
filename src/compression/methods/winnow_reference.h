#pragma once

#include <cstdint>
#include <span>
#include <vector>

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
};

// Reference rows of one KV head. A row stands for all query heads of the group.
struct ReferenceRows {
  int group = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 0;
  std::vector<float> queries;      // [row, group, key_dim]
  std::vector<double> weights;     // [row]: 1 / (residual norm)^2
  std::vector<int64_t> n_visible;  // [row]: entries the row sees
  // What the row gave to entries that are not there any more (its own replay's) or are not up for
  // choice: log of the sum of exp(score) over them, and their part of the output, times that sum's
  // share. Scores are relative to `max`.
  std::vector<float> max;         // [row, group]: of all scores
  std::vector<float> own_sum;     // [row, group]: sum of exp(score - max)
  std::vector<float> own_output;  // [row, group, value_dim]: sum of exp(score - max) * value

  int64_t size() const { return static_cast<int64_t>(weights.size()); }
  std::span<const float> query(int64_t row, int head) const {
    return std::span(queries).subspan(static_cast<size_t>((row * group + head) * key_dim),
                                      static_cast<size_t>(key_dim));
  }
  size_t At(int64_t row, int head) const { return static_cast<size_t>(row * group + head); }
  std::span<const float> own(int64_t row, int head) const {
    return std::span(own_output)
        .subspan(At(row, head) * static_cast<size_t>(value_dim), static_cast<size_t>(value_dim));
  }
};

// Scores of one query of the reference for the entries: scale * q . k + bias; [entries.n].
void Scores(const ReferenceRows& rows, int64_t row, int head, const HeadEntriesOnHost& entries,
            std::span<float> out);

// Adds a row: `queries` [group, key_dim] of one KV head. Of the n_visible entries it sees, those
// from first_own on go after this: what they gave is kept as its own part.
void AddRow(ReferenceRows& rows, std::span<const float> queries, double norm, int64_t n_visible,
            int64_t first_own, const HeadEntriesOnHost& entries);

// What the reference rows get of all entries.
struct Targets {
  std::vector<float> outputs;   // [row, group, value_dim]
  std::vector<float> masses;    // [row, group]: sums of exp(score - max), the own part's included
  std::vector<double> weights;  // [entry]: attention received, summed over rows and group
};
Targets MakeTargets(const ReferenceRows& rows, const HeadEntriesOnHost& entries);

// exp(score - max) of one query for every entry, 0 where it does not see it: [entries.n].
void Masses(const ReferenceRows& rows, int64_t row, int head, const HeadEntriesOnHost& entries,
            std::span<float> out);

}  // namespace winnow::compression::methods
