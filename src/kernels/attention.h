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
//   the model's magnitude). An angle grows with p in proportion.
struct RopeTable {
  Matrix table;
  int n_rotated = 0;         // dimensions that rotate, 2 * n_pairs; the others stay
  bool interleaved = false;  // pairs (2i, 2i+1); otherwise (i, i + n_rotated/2)
};

// The live entries of one KV head in one layer, as stored.
//   keys, values  rows [slot, head_dim] of `key_type` / `value_type`, a row after a row, from the
//   byte offset on
struct HeadStore {
  Storage* keys = nullptr;
  Storage* values = nullptr;
  int64_t keys_offset_bytes = 0;
  int64_t values_offset_bytes = 0;
  int64_t n_slots = 0;  // live entries (for StoreRows: ignored)
};

// The entries of one KV head where an entry is more than the row of the same number. Host data.
struct HeadEntries {
  // [entry] the row an entry is stored in; several may share one. At most one of the two is there;
  // none: entry i is row i.
  std::span<const int32_t> rows = {};
  std::span<const uint16_t> short_rows = {};
  // [entry] what the key is multiplied by. Empty: 1.
  std::span<const Half> factors = {};
  // [entry] where the key is rotated to, if Attention::rope is set (rows of its table).
  std::span<const int32_t> positions = {};
  int32_t query_position = 0;  // where the first query is rotated to; query i: query_position + i
  // [entry] what is added to its scores, after their scaling and before the softmax: an entry that
  // stands for several has the logarithm of their number. Empty: 0. Requires: entries are rows.
  std::span<const Half> biases = {};

  bool shares_rows() const { return !rows.empty() || !short_rows.empty(); }
  // Of entries that share rows.
  size_t size() const { return rows.size() + short_rows.size(); }
};

// What a method wants to know about the attention weights of one layer (probabilities after
// softmax), reduced over the query heads of a KV head's group inside the kernel. Nothing requested
// costs nothing.
struct TapSpec {
  // kNone: not reduced, one list per query head.
  enum class Reduce { kMean, kMax, kSum, kNone };
  int last_rows = 0;         // weights of the last n queries of this call
  int last_sums = 0;         // sum over the last n queries of this call
  bool column_sums = false;  // sum over all queries of this call
  bool square_sums = false;  // sum of the squares (of the reduced weights) over all queries
  bool column_max = false;   // the largest (of the reduced weights) over all queries
  Reduce reduce = Reduce::kMean;
  bool operator==(const TapSpec&) const = default;
  bool any() const { return last_rows > 0 || last_sums > 0 || sees_all(); }
  // Whether every query of the call counts.
  bool sees_all() const { return column_sums || square_sums || column_max; }
};

// What the taps found, on the host. "Head" is a KV head, or a query head with Reduce::kNone. A
// struct that is used again keeps its memory.
struct Taps {
  // [head][row * n_entries + entry]: row 0 is the oldest of the last_rows queries that exist. Zero
  // where not visible.
  std::vector<std::vector<float>> last_rows;
  int n_last_rows = 0;
  int n_last_sums = 0;  // queries that last_sums are over
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
  // Set: queries and keys are given before RoPE and rotated on their way, to the places `entries`
  // gives. Requires: entries.size() == heads.size() and positions for every entry.
  const RopeTable* rope = nullptr;
  std::span<const HeadEntries> entries = {};  // one per KV head; empty: entry i is row i
  // Below 1: every query head attends only to the smallest set of entries whose weights reach this
  // sum, renormalised (Twilight). Requires: q.rows == 1 and no taps.
  float top_p = 1;
  int64_t* n_attended =
      nullptr;  // with top_p < 1: set to the entries used, summed over query heads
  TapSpec taps = {};
  Taps* found = nullptr;  // filled if taps.any()
};

}  // namespace winnow::kernels
