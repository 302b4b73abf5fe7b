#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/processor.h"
#include "kernels/ops.h"

// The inner parts of attention, one instruction set each; attention.cc cuts the work up and puts
// the results together. Scores are in units of log2: queries are multiplied by scale * log2(e)
// first, and weights are powers of two.
namespace winnow::kernels::cpu {

// Rotation of queries and keys on their way to each other.
struct Rotation {
  const float* table = nullptr;  // [position, n_rotated]: cosines, then sines; null: no rotation
  int64_t stride = 0;            // floats
  int n_rotated = 0;
  bool interleaved = false;
  bool unit = false;  // rotations as such, not scaled: that by a and that by b are that by a + b

  bool any() const { return table != nullptr; }
  const float* Angles(int64_t position) const { return table + position * stride; }

  // A position as the sum of two, each of few: their rows stay near, where those of all positions,
  // read in no order, are more bytes than the keys.
  static constexpr int64_t kFine = 32;
  const float* Coarse(int64_t position) const { return Angles(position & -kFine); }
  const float* Fine(int64_t position) const { return Angles(position & (kFine - 1)); }
};

// What entries are besides one row after another.
struct EntryMap {
  const int32_t* rows = nullptr;       // [entry]; null: entry i is row i
  const float* factors = nullptr;      // [entry], of the keys; null: 1
  const int32_t* positions = nullptr;  // [entry]; read if there is a rotation
  const float* biases = nullptr;       // [entry], added to the scores, times log2(e); null: 0
  int64_t query_position = 0;          // of query 0

  // Keys are the stored rows as they are.
  bool plain() const { return rows == nullptr && factors == nullptr && positions == nullptr; }
  // The map of the entries from `first` on.
  EntryMap From(int64_t first) const {
    return {.rows = rows == nullptr ? nullptr : rows + first,
            .factors = factors == nullptr ? nullptr : factors + first,
            .positions = positions == nullptr ? nullptr : positions + first,
            .biases = biases == nullptr ? nullptr : biases + first,
            .query_position = query_position};
  }
};

// What all jobs of a call share.
struct AttentionShape {
  int group = 0;  // query heads per KV head
  int key_dim = 0;
  int value_dim = 0;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  float scale = 0;  // times log2(e)
  int64_t key_row_bytes = 0;
  int64_t value_row_bytes = 0;
  Rotation rotation;
  PrefetchPolicy prefetch;
};

// Softmax over a part of the slots, not yet divided by its sum:
//   acc = sum of 2^(score - max) * value, sum = sum of 2^(score - max)
struct Partial {
  float* max = nullptr;  // [row]
  float* sum = nullptr;  // [row]
  float* acc = nullptr;  // [row, value_dim]
};

// At most this many slots in one decode job: keys and values of a chunk stay in the second-level
// cache, and a long cache still gives every thread something to do.
inline constexpr int kChunkSlots = 256;
// Neighbouring chunks that one thread takes.
inline int64_t ChunksTogether(int64_t n_chunks, int n_threads) {
  return std::clamp<int64_t>(n_chunks / (4 * n_threads), 1, 4);
}

// One query, the query heads of one KV head, one chunk of entries.
struct ChunkJob {
  const float* q = nullptr;         // [group, key_dim]
  const std::byte* keys = nullptr;  // of the chunk's first entry; of row 0 if entries.rows is set
  const std::byte* values = nullptr;
  const std::byte* next_keys = nullptr;  // of the chunk likely to be next, whole; null: none
  EntryMap entries = {};                 // of the chunk, with the query's position
  int n_slots = 0;                       // 1..kChunkSlots
  Partial partial = {};                  // rows: the group
  // attend_chunk: [group, kChunkSlots], where 2^(score - max of the chunk) is left per slot; null:
  // nowhere. Others: [group, weights_stride].
  float* weights = nullptr;
  int64_t weights_stride = 0;
  bool rows_fetched = false;  // with entries.rows: all rows were prefetched
  float* scratch = nullptr;   // scratch_floats()
};

// One query head's weights from its scores.
struct SoftmaxJob {
  const float* scores = nullptr;   // [entry], or [row] if `rows` is set
  const int32_t* rows = nullptr;   // [entry]: where its score is
  const float* factors = nullptr;  // [entry]: what that is multiplied by; null: 1
  int64_t n_entries = 0;
  float* weights = nullptr;  // out [entry]: 2^(score - max)
};

// Weights of one chunk from some query heads to one number per slot.
struct ChunkTapJob {
  const float* weights = nullptr;  // [n_heads, weights_stride]
  int64_t weights_stride = 0;
  int n_heads = 0;
  const float* factors = nullptr;  // [n_heads]: what makes the weights' sums over all slots 1
  int n_slots = 0;
  TapSpec::Reduce reduce = TapSpec::Reduce::kMean;
  float* out = nullptr;  // [n_slots]
};

struct DecodeKernels {
  // Requires: entries.rows is null.
  void (*attend_chunk)(const AttentionShape& shape, const ChunkJob& job);
  // The steps of attend_chunk, for where the weights are not those of one chunk's own softmax.
  //   score_chunk  writes scores to `weights`
  //   softmax      returns the sum of the weights
  //   accumulate_chunk  sums `values`, one row after another, by `weights`; rows without weight are
  //   not
  //                read
  void (*score_chunk)(const AttentionShape& shape, const ChunkJob& job);
  float (*softmax)(const SoftmaxJob& job);
  void (*accumulate_chunk)(const AttentionShape& shape, const ChunkJob& job);
  void (*reduce_chunk)(const ChunkTapJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);  // that a chunk needs
};
const DecodeKernels& DecodeKernelsFor(int64_t target);

// Rows of prefill: row r is query r / group, query head r % group. Rows are worked on in blocks of
// this many.
inline constexpr int kBlockRows = 64;
// Slots unpacked at a time: with these, queries, keys, scores, values and results of a block of
// rows fit an L1 cache at 64 dimensions.
inline constexpr int kTileSlots = 48;

// Below every score, and finite.
inline constexpr float kNoScore = -1e30f;

// What the rows of a block give to each entry in all. Weights are kept until a row has met all
// entries and its sum is known, instead of being computed once more.
struct BlockSums {
  int n_lists = 1;       // 1: of all rows; the group: of every query head's rows on their own
  float share = 1;       // what weights are multiplied by
  bool largest = false;  // instead of the sum over the rows
  // [n_lists, end_slot], out: of share * 2^(score - max) / sum; null: not asked for
  float* sums = nullptr;
  float* weights = nullptr;  // KeptFloats(end_slot): where weights are kept
};

// Some rows of one KV head against the entries [first_slot, end_slot).
struct BlockJob {
  const float* q = nullptr;  // [n_queries, group * key_dim] of this KV head
  int64_t q_stride = 0;
  const std::byte* keys = nullptr;    // of row 0
  const std::byte* values = nullptr;  // of row 0
  EntryMap entries;
  int64_t first_row = 0;
  int n_rows = 0;              // 1..kBlockRows
  int64_t visible_before = 0;  // query i sees entries [0, visible_before + i + 1)
  int64_t first_slot = 0;
  int64_t end_slot = 0;
  float* max = nullptr;         // [n_rows]: of the scores; kNoScore for a row that sees no entry
  float* sum = nullptr;         // [n_rows]: of 2^(score - max)
  float* const* out = nullptr;  // [n_rows]: where a row's sum of 2^(score - max) * value goes
  bool divide = true;           // by `sum`
  BlockSums columns = {};       // requires: first_slot is 0, and no other job has these rows
  float* scratch = nullptr;     // scratch_floats()
};

// Floats that the weights of a block and n_slots entries take: whole tiles of weights, then the
// maxima that each tile's refer to.
inline int64_t KeptTiles(int64_t n_slots) { return (n_slots + kTileSlots - 1) / kTileSlots; }
inline int64_t KeptFloats(int64_t n_slots) {
  return KeptTiles(n_slots) * (kTileSlots + 1) * kBlockRows;
}

struct PrefillKernels {
  void (*attend_block)(const AttentionShape& shape, const BlockJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);
};
const PrefillKernels& PrefillKernelsFor(int64_t target);

// Weights of the queries [first_query, end_query) for a range of entries of one KV head, from the
// row statistics of the first pass.
inline constexpr int kTapSlots = 384;
struct TapJob {
  const float* q = nullptr;  // [n_queries, group * key_dim] of this KV head
  int64_t q_stride = 0;
  const std::byte* keys = nullptr;  // of row 0
  EntryMap entries;
  int64_t n_entries = 0;       // of the head
  int64_t visible_before = 0;  // query i sees entries [0, visible_before + i + 1)
  int64_t first_query = 0;
  int64_t end_query = 0;
  int64_t first_slot = 0;
  int n_slots = 0;             // 1..kTapSlots
  const float* max = nullptr;  // [n_queries * group]
  const float* sum = nullptr;
  TapSpec taps;
  int64_t first_row_query = 0;                       // that `last_rows` holds
  std::vector<std::vector<double>>* sums = nullptr;  // where column sums go
  // The lists of this head are those from first_list on: one, or one per query head. They are zero
  // where the queries do not see an entry, and this job's part is overwritten elsewhere.
  Taps* found = nullptr;
  int64_t first_list = 0;
  float* scratch = nullptr;  // scratch_floats()
};

struct TapKernels {
  void (*tap_slots)(const AttentionShape& shape, const TapJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape, const TapSpec& taps);
};
const TapKernels& TapKernelsFor(int64_t target);

}  // namespace winnow::kernels::cpu
