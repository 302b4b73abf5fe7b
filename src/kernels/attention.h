#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "kernels/memory.h"

// Attention over stored entries, RoPE, and the taps that methods ask attention for.
namespace winnow::kernels {

// cos and sin of every (position, pair): rotation of pair i at position p.
//   table  [n_positions, 2 * n_pairs]: cos of all pairs, then sin of all pairs (already scaled by
//   the model's magnitude). The angle of a pair is proportional to p.
struct RopeTable {
  Matrix table;
  int n_rotated = 0;         // dimensions that rotate, 2 * n_pairs; the others pass unchanged
  bool interleaved = false;  // pairs (2i, 2i+1); otherwise (i, i + n_rotated/2)
};

// The live entries of one KV head in one layer, as stored.
//   keys, values  rows [slot, head_dim] of `key_type` / `value_type`, contiguous from the byte
//   offset
struct HeadStore {
  Storage* keys = nullptr;
  Storage* values = nullptr;
  int64_t keys_offset_bytes = 0;
  int64_t values_offset_bytes = 0;
  int64_t n_slots = 0;  // live entries (for StoreRows: ignored)
};

// Entries of one KV head when entry i is not simply the stored row i. Host data.
struct HeadEntries {
  // [entry] the row an entry is stored in; several entries may share a row. At most one of `rows`
  // and `short_rows` is set; neither: entry i is row i.
  std::span<const int32_t> rows = {};
  std::span<const uint16_t> short_rows = {};
  // [entry] factor of the key. Empty: 1.
  std::span<const Half> factors = {};
  // [entry] position the key is rotated to, if Attention::rope is set (a row of its table).
  std::span<const int32_t> positions = {};
  int32_t query_position = 0;  // position of query 0; query i is rotated to query_position + i
  // [entry] bias added to its scores after scaling, before the softmax. An entry that stands for n
  // tokens has the bias log(n). Empty: 0. Requires: !shares_rows().
  std::span<const Half> biases = {};

  bool shares_rows() const { return !rows.empty() || !short_rows.empty(); }
  // Number of entries. Requires: shares_rows().
  size_t size() const { return rows.size() + short_rows.size(); }
};

// What a method requests of the attention weights of one layer (probabilities after softmax). The
// kernel reduces them over the query heads of a KV head's group. Taps not requested cost nothing.
struct TapSpec {
  // kNone: not reduced; one list per query head.
  enum class Reduce { kMean, kMax, kSum, kNone };
  int last_rows = 0;         // weights of the last n queries of this call
  int last_sums = 0;         // sum over the last n queries of this call
  bool column_sums = false;  // sum over all queries of this call
  bool square_sums = false;  // sum of the squares (of the reduced weights) over all queries
  bool column_max = false;   // maximum (of the reduced weights) over all queries
  Reduce reduce = Reduce::kMean;
  bool operator==(const TapSpec&) const = default;
  bool any() const { return last_rows > 0 || last_sums > 0 || sees_all(); }
  // Whether a requested tap needs the weights of every query of the call.
  bool sees_all() const { return column_sums || square_sums || column_max; }
};

// Results of the taps, on the host. "Head" is a KV head, or a query head with Reduce::kNone.
// Reusing a struct reuses its memory.
struct Taps {
  // [head][row * n_entries + entry]: row 0 is the oldest of the last `n_last_rows` queries. Zero
  // for entries that the query does not see.
  std::vector<std::vector<float>> last_rows;
  int n_last_rows = 0;
  int n_last_sums = 0;  // number of queries that last_sums cover
  // [head][entry], accumulated in double over the queries.
  std::vector<std::vector<double>> last_sums;
  std::vector<std::vector<double>> column_sums;
  std::vector<std::vector<double>> square_sums;
  std::vector<std::vector<float>> column_max = {};  // [head][entry]
};

// Attention of `q.rows` queries over one layer's cache, all heads. The last q.rows entries of every
// head are the queries' own in text order, so query i sees entries [0, n_entries - q.rows + i + 1).
struct Attention {
  Matrix q;    // [n_queries, n_q_heads * key_dim], rotated unless `rope` is set
  Matrix out;  // [n_queries, n_q_heads * value_dim]
  int n_q_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  float scale = 0;
  std::span<const HeadStore> heads;  // one per KV head; n_q_heads is a multiple of their number
  // Set: queries and keys are given before RoPE; attention rotates them to the positions in
  // `entries`. Requires: entries.size() == heads.size() and positions for every entry.
  const RopeTable* rope = nullptr;
  std::span<const HeadEntries> entries = {};  // one per KV head; empty: entry i is row i
  // Below 1: every query head attends only to the smallest set of entries whose weights sum to at
  // least top_p, renormalised (Twilight). Requires: q.rows == 1 and no taps.
  float top_p = 1;
  // With top_p < 1: set to the number of entries used, summed over query heads.
  int64_t* n_attended = nullptr;
  TapSpec taps = {};
  Taps* found = nullptr;  // filled if taps.any()
};

}  // namespace winnow::kernels
