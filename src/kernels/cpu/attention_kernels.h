#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

// The inner parts of attention, one instruction set each; attention.cc cuts the work up and puts
// the results together. Scores are in units of log2: queries are multiplied by scale * log2(e)
// first, and weights are powers of two.
namespace winnow::kernels::cpu {

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

// One query, the query heads of one KV head, one chunk of slots.
struct ChunkJob {
  const float* q = nullptr;  // [group, key_dim]
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int n_slots = 0;  // 1..kChunkSlots
  Partial partial;  // rows: the group
  // [group, weights_stride]: 2^(score - max of the chunk) per slot, or null.
  float* weights = nullptr;
  int64_t weights_stride = 0;
  float* scratch = nullptr;  // scratch_floats()
};

// Decode's taps: weights of one chunk from all heads of the group to one number per slot.
struct ChunkTapJob {
  const float* weights = nullptr;  // [group, weights_stride]
  int64_t weights_stride = 0;
  const float* factors = nullptr;  // [group]: 2^(chunk's max - max) / sum
  int n_slots = 0;
  TapSpec::Reduce reduce = TapSpec::Reduce::kMean;
  float* out = nullptr;  // [n_slots]
};

struct DecodeKernels {
  void (*attend_chunk)(const AttentionShape& shape, const ChunkJob& job);
  void (*reduce_chunk)(const AttentionShape& shape, const ChunkTapJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);  // that attend_chunk needs
};
const DecodeKernels& DecodeKernelsFor(int64_t target);

// Rows of prefill: row r is query r / group, query head r % group. Rows are worked on in blocks of
// this many.
inline constexpr int kBlockRows = 64;

// Below every score, and finite.
inline constexpr float kNoScore = -1e30f;

// Some rows of one KV head against the slots [first_slot, end_slot).
struct BlockJob {
  const float* q = nullptr;  // [n_queries, group * key_dim] of this KV head
  int64_t q_stride = 0;
  const std::byte* keys = nullptr;    // of slot 0
  const std::byte* values = nullptr;  // of slot 0
  int64_t first_row = 0;
  int n_rows = 0;              // 1..kBlockRows
  int64_t visible_before = 0;  // query i sees slots [0, visible_before + i + 1)
  int64_t first_slot = 0;
  int64_t end_slot = 0;
  float* max = nullptr;         // [n_rows]: of the scores; kNoScore for a row that sees no slot
  float* sum = nullptr;         // [n_rows]: of 2^(score - max)
  float* const* out = nullptr;  // [n_rows]: where a row's sum of 2^(score - max) * value goes
  bool divide = true;           // by `sum`
  float* scratch = nullptr;     // scratch_floats()
};

// Weights of the queries [first_query, end_query) for a range of slots of one KV head, from the row
// statistics of the first pass.
inline constexpr int kTapSlots = 384;
struct TapJob {
  const float* q = nullptr;  // [n_queries, group * key_dim] of this KV head
  int64_t q_stride = 0;
  const std::byte* keys = nullptr;  // of slot 0
  int64_t visible_before = 0;       // query i sees slots [0, visible_before + i + 1)
  int64_t first_query = 0;
  int64_t end_query = 0;
  int64_t first_slot = 0;
  int n_slots = 0;             // 1..kTapSlots
  const float* max = nullptr;  // [n_queries * group]
  const float* sum = nullptr;
  TapSpec::Reduce reduce = TapSpec::Reduce::kMean;
  double* column_sums = nullptr;  // [n_slots], overwritten; or null
  // rows[i * rows_stride + s] is the weight of query first_row_query + i for slot first_slot + s;
  // or null
  float* rows = nullptr;
  int64_t rows_stride = 0;
  int64_t first_row_query = 0;
  float* scratch = nullptr;  // scratch_floats()
};

struct PrefillKernels {
  void (*attend_block)(const AttentionShape& shape, const BlockJob& job);
  void (*tap_slots)(const AttentionShape& shape, const TapJob& job);
  int64_t (*scratch_floats)(const AttentionShape& shape);  // that both need
};
const PrefillKernels& PrefillKernelsFor(int64_t target);

}  // namespace winnow::kernels::cpu
