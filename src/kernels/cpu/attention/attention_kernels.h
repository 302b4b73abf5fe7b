#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/processor.h"
#include "kernels/ops.h"

// Inner loops of attention, compiled per instruction set. few_queries.cc, by_rows.cc and
// many_queries.cc split the work and merge the results. Scores are in units of log2: queries are
// multiplied by scale * log2(e), and weights are powers of two.
namespace winnow::kernels::cpu {

// Rotation (RoPE) of queries and keys inside attention.
struct Rotation {
  const float* table = nullptr;  // [position, n_rotated]: cosines, then sines; null: no rotation
  int64_t stride = 0;            // floats
  int n_rotated = 0;
  bool interleaved = false;
  bool unit = false;  // no magnitude: rotating by a and by b is rotating by a + b

  bool any() const { return table != nullptr; }
  const float* Angles(int64_t position) const { return table + position * stride; }

  // A position is the sum of a coarse and a fine one (0..31). The rows of these few positions stay
  // in the cache; the rows of all positions, read in random order, are more bytes than the keys.
  static constexpr int64_t kFine = 32;
  const float* Coarse(int64_t position) const { return Angles(position & -kFine); }
  const float* Fine(int64_t position) const { return Angles(position & (kFine - 1)); }
};

// How entries differ from consecutive stored rows.
struct EntryMap {
  const int32_t* rows = nullptr;       // [entry]; null: entry i is row i
  const float* factors = nullptr;      // [entry], factors of the keys; null: 1
  const int32_t* positions = nullptr;  // [entry]; read if there is a rotation
  const float* biases = nullptr;       // [entry], added to the scores, times log2(e); null: 0
  int64_t query_position = 0;          // of query 0

  // Whether keys are exactly the stored rows.
  bool plain() const { return rows == nullptr && factors == nullptr && positions == nullptr; }
  // The map of the entries starting at `first`.
  EntryMap From(int64_t first) const {
    return {.rows = rows == nullptr ? nullptr : rows + first,
            .factors = factors == nullptr ? nullptr : factors + first,
            .positions = positions == nullptr ? nullptr : positions + first,
            .biases = biases == nullptr ? nullptr : biases + first,
            .query_position = query_position};
  }
};

// A query rounded to 8 bits per block of 32, in the order of the key's elements.
struct QuantizedQuery {
  const int8_t* values = nullptr;  // [group, key_dim]
  const float* scales = nullptr;   // [group, n_blocks]
  const int32_t* sums = nullptr;   // [group, n_blocks], of the values
};

// Scores of one query for a tile of stored rows: as many as floats fit a vector of the target.
//   scores[h * kChunkSlots + row] = q[h] . rows[row]
struct BlockScoreKernels {
  using Score = void(const std::byte* rows, int64_t row_bytes, const QuantizedQuery& q,
                     int n_blocks, int group, float* scores);
  Score* q8_0 = nullptr;
  Score* q4_0 = nullptr;
  int n_lanes = 0;  // floats of a vector
};
const BlockScoreKernels& BlockScoreKernelsFor(int64_t target);

// Parameters shared by all jobs of a call.
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
  const BlockScoreKernels* block_scores = nullptr;
};

// Softmax over a part of the slots, not yet normalised:
//   acc = sum of 2^(score - max) * value, sum = sum of 2^(score - max)
struct Partial {
  float* max = nullptr;  // [row]
  float* sum = nullptr;  // [row]
  float* acc = nullptr;  // [row, value_dim]
};

// Maximum number of slots in a decode job: keys and values of a chunk stay in L2, and a long cache
// still has work for every thread.
inline constexpr int kChunkSlots = 256;
// Adjacent chunks that a thread claims at once.
inline int64_t ChunksTogether(int64_t n_chunks, int n_threads) {
  return std::clamp<int64_t>(n_chunks / (4 * n_threads), 1, 4);
}

// One query, the query heads of one KV head, one chunk of entries.
struct ChunkJob {
  const float* q = nullptr;         // [group, key_dim]
  const std::byte* keys = nullptr;  // of the chunk's first entry; of row 0 if entries.rows is set
  const std::byte* values = nullptr;
  const std::byte* next_keys = nullptr;  // of the likely next chunk if it is whole; null: none
  EntryMap entries = {};                 // of the chunk; query_position is the query's
  int n_slots = 0;                       // 1..kChunkSlots
  Partial partial = {};                  // rows: the group
  // attend_chunk: [group, kChunkSlots], out: 2^(score - max of the chunk) per slot; null: not
  // stored. Others: [group, weights_stride].
  float* weights = nullptr;
  int64_t weights_stride = 0;
  bool rows_fetched = false;  // with entries.rows: all rows are prefetched already
  float* scratch = nullptr;   // scratch_floats()
};

// Computes one query head's weights from its scores.
struct SoftmaxJob {
  const float* scores = nullptr;   // [entry], or [row] if `rows` is set
  const int32_t* rows = nullptr;   // [entry]: index of its score
  const float* factors = nullptr;  // [entry]: factors of the scores; null: 1
  int64_t n_entries = 0;
  float* weights = nullptr;  // out [entry]: 2^(score - max)
};

// Reduces the weights of one chunk over query heads, to one number per slot.
struct ChunkTapJob {
  const float* weights = nullptr;  // [n_heads, weights_stride]
  int64_t weights_stride = 0;
  int n_heads = 0;
  const float* factors = nullptr;  // [n_heads]: normalise the weights to sum 1 over all slots
  int n_slots = 0;
  TapSpec::Reduce reduce = TapSpec::Reduce::kMean;
  float* out = nullptr;  // [n_slots]
};

struct DecodeKernels {
  // Requires: entries.rows is null.
  void (*attend_chunk)(const AttentionShape& shape, const ChunkJob& job);
  // The steps of attend_chunk, for weights that are not a softmax over one chunk alone.
  //   score_chunk       writes scores to `weights`
  //   softmax           returns the sum of the weights
  //   accumulate_chunk  sums rows of `values` times `weights`; does not read rows of weight 0
  void (*score_chunk)(const AttentionShape& shape, const ChunkJob& job);
  float (*softmax)(const SoftmaxJob& job);
  void (*accumulate_chunk)(const AttentionShape& shape, const ChunkJob& job);
  void (*reduce_chunk)(const ChunkTapJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);  // floats of ChunkJob::scratch
  int n_lanes = 0;                                         // those of BlockScoreKernels
};
const DecodeKernels& DecodeKernelsFor(int64_t target);

// Rows of prefill: row r is query r / group, query head r % group. Kernels process blocks of this
// many rows.
inline constexpr int kBlockRows = 64;
// Slots unpacked at a time. With this many, the queries, keys, scores, values and results of a
// block of rows fit L1 at 64 dimensions.
inline constexpr int kTileSlots = 48;

// Finite, and below every real score.
inline constexpr float kNoScore = -1e30f;

// Column sums (or maxima) over the rows of a block. The block's weights are kept until all entries
// are processed and the rows' sums are known, instead of being computed again in a second pass.
struct BlockSums {
  int n_lists = 1;       // 1: over all rows; `group`: separately for the rows of every query head
  float share = 1;       // factor of the weights
  bool largest = false;  // maximum over the rows instead of the sum
  // [n_lists, end_slot], out: sums of share * 2^(score - max) / sum; null: not requested
  float* sums = nullptr;
  float* weights = nullptr;  // [KeptFloats(end_slot)]: memory for the kept weights
};

// Attention of some rows of one KV head over the entries [first_slot, end_slot).
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
  float* const* out = nullptr;  // [n_rows]: destination of a row's sum of 2^(score - max) * value
  bool divide = true;           // whether to divide `out` by `sum`
  BlockSums columns = {};       // requires: first_slot is 0, and no other job covers these rows
  float* scratch = nullptr;     // scratch_floats()
};

// Floats for the kept weights of a block and n_slots entries: whole tiles of weights, then per tile
// the row maxima that its weights are relative to.
inline int64_t KeptTiles(int64_t n_slots) { return (n_slots + kTileSlots - 1) / kTileSlots; }
inline int64_t KeptFloats(int64_t n_slots) {
  return KeptTiles(n_slots) * (kTileSlots + 1) * kBlockRows;
}

struct PrefillKernels {
  void (*attend_block)(const AttentionShape& shape, const BlockJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);
};
const PrefillKernels& PrefillKernelsFor(int64_t target);

// Recomputes the weights of the queries [first_query, end_query) for a range of entries of one KV
// head from the row statistics of the first pass, and adds them to the taps.
inline constexpr int kTapSlots = 384;
struct TapJob {
  const float* q = nullptr;  // [n_queries, group * key_dim] of this KV head
  int64_t q_stride = 0;
  const std::byte* keys = nullptr;  // of row 0
  EntryMap entries;
  int64_t n_entries = 0;       // entries of the head
  int64_t visible_before = 0;  // query i sees entries [0, visible_before + i + 1)
  int64_t first_query = 0;
  int64_t end_query = 0;
  int64_t first_slot = 0;
  int n_slots = 0;             // 1..kTapSlots
  const float* max = nullptr;  // [n_queries * group]
  const float* sum = nullptr;
  TapSpec taps;
  int64_t first_row_query = 0;                       // first query in `last_rows`
  std::vector<std::vector<double>>* sums = nullptr;  // destination of column sums
  // The head's lists start at first_list: one, or one per query head. Requires: they are zero
  // before the first job. A job fills its own range of entries.
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
