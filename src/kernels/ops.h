#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/tensor_type.h"

// The operations of a transformer, and the memory they work on. Nothing above this room touches the
// elements of a big tensor: it holds handles and calls a Backend. Plans, taps, tokens and positions
// are host data.
namespace winnow::kernels {

using gguf::TensorType;

// Memory of one backend. Only the backend that allocated it may look inside.
class Storage {
 public:
  virtual ~Storage() = default;
  virtual int64_t size_bytes() const = 0;
};

struct ByteRange {
  int64_t first = 0;
  int64_t end = 0;
};

// Handle to a row-major float32 matrix. Owns nothing; empty when storage is null.
struct Matrix {
  Storage* storage = nullptr;
  int64_t offset = 0;  // floats from the start of the storage to element (0, 0)
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // floats from one row to the next, >= cols

  bool empty() const { return storage == nullptr; }
  Matrix Rows(int64_t first, int64_t n) const {
    return {storage, offset + first * stride, n, cols, stride};
  }
  Matrix Cols(int64_t first, int64_t n) const { return {storage, offset + first, rows, n, stride}; }
  bool operator==(const Matrix&) const = default;
};

// A weight matrix prepared by a backend: `rows` output features, each a row of `cols` input
// features.
class Weight {
 public:
  virtual ~Weight() = default;
  virtual TensorType type() const = 0;
  virtual int64_t rows() const = 0;
  virtual int64_t cols() const = 0;
  virtual int64_t resident_bytes() const = 0;  // memory of our own, beyond the mapped file
};

// Where a weight comes from: blocks as in the GGUF file, row after row. `keep_alive` keeps `bytes`
// mapped.
struct WeightSource {
  std::string_view name;  // for messages
  TensorType type = TensorType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep_alive;
};

// One product of several that share their input.
struct Linear {
  const Weight* weight = nullptr;
  Matrix bias;              // [1, weight rows] or empty
  Matrix out;               // [x rows, weight rows]
  bool accumulate = false;  // out += instead of out =
};

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

// Storage types of a cache: F32, F16, BF16, Q8_0, Q4_0. Quantised types need head_dim % 32 == 0.
bool IsCacheType(TensorType type);

// The rows of one storage that belong to one KV head: all its keys or all its values.
struct HeadRows {
  Storage* storage = nullptr;
  int64_t offset_bytes = 0;  // of row 0
  int dim = 0;
  TensorType type = TensorType::kF16;
  bool hadamard = false;  // rows went through Backend::Hadamard before they were stored
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

// One new row as a weighted sum of rows: into = sum of weights[i] * rows[i].
struct RowSum {
  int32_t into = 0;
  std::span<const int32_t> rows;
  std::span<const float> weights;
};

// For every row of `from` the most similar row of `to`.
struct Similarity {
  // kProduct: the product of the two cosines.
  enum class Measure { kKeys, kValues, kProduct };
  HeadRows keys;
  HeadRows values;  // not read for kKeys
  Measure measure = Measure::kKeys;
  std::span<const int32_t> from;
  std::span<const int32_t> to;  // not empty; rows in the order of memory are read fastest
  // [row] Of equally similar rows that of the lowest rank is taken. Empty: the first of them.
  // Requires: all rows are below ranks.size() then.
  std::span<const int32_t> ranks = {};
  // What is less similar counts as nothing, and need not be compared to the end.
  double min_similarity = -std::numeric_limits<double>::infinity();
  std::span<float> best;       // out [from]: cosine, 0 where one of the two rows is zero
  std::span<int32_t> best_to;  // out [from]: index into `to`; kNone, with best = -infinity: all are
                               // below `least`
  static constexpr int32_t kNone = -1;
};

// How rows point where all of them do: cosines to the mean of their unit vectors.
struct MeanCosines {
  HeadRows head;
  std::span<const int32_t> rows;
  // out [row]: -1 to 1; 0 for a row that is zero, and everywhere if the mean is. A row with NaN or
  // an infinity makes all of them NaN.
  std::span<double> cosines;
};

// What the entries of one KV head received of attention, [entry]: in all, and in two windows of
// queries. Host data.
struct AttentionSums {
  std::span<double> total;
  std::span<Half> past;     // in the last whole window
  std::span<Half> current;  // in the window that has begun
};
// Sums over the entries.
struct AttentionTotals {
  double total = 0;
  double window = 0;  // of past and current
};

enum class Activation { kSilu, kGelu };  // GELU: the tanh form, as in the reference engine

// A place that computes. All calls run to completion before they return; one caller at a time.
// Results do not depend on the number of threads, bit for bit.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "reference"
  virtual std::string_view target()
      const = 0;  // instruction set in use: "AVX3_DL", "AVX2", "scalar"

  // --- memory ---
  // Zeroed memory. Pages are committed as they are first written where the system allows it.
  // Error: the system refuses; the message says how many bytes were wanted.
  virtual Result<std::unique_ptr<Storage>> Allocate(int64_t bytes) = 0;
  // The same for memory that fills up slowly and is given back in parts: committed in the smallest
  // steps the system has, until Settle.
  virtual Result<std::unique_ptr<Storage>> AllocateGrowing(int64_t bytes) {
    return Allocate(bytes);
  }
  // Which parts of such memory are in use, or will be at once, ascending: where they leave little
  // free, it may be put on huge pages, which are faster to read.
  virtual void UseHugePages(Storage& storage, std::span<const ByteRange> used) {
    (void)storage;
    (void)used;
  }
  virtual Result<std::unique_ptr<Weight>> LoadWeight(const WeightSource& source) = 0;
  virtual void Write(const Matrix& to, std::span<const float> from) = 0;  // rows packed
  virtual void Read(const Matrix& from, std::span<float> to) = 0;         // rows packed
  // Rows of `bytes_per_row` bytes inside one storage: row from[i] is copied to row to[i], in this
  // order.
  virtual void MoveRows(Storage& storage, int64_t offset_bytes, int64_t bytes_per_row,
                        std::span<const int32_t> from, std::span<const int32_t> to) = 0;
  // Bytes of a storage as they are. Requires: they lie within it.
  virtual void ReadBytes(const Storage& from, int64_t offset_bytes, std::span<std::byte> to) = 0;
  virtual void WriteBytes(Storage& to, int64_t offset_bytes, std::span<const std::byte> from) = 0;
  virtual void CopyBytes(const Storage& from, int64_t from_offset_bytes, Storage& to,
                         int64_t to_offset_bytes, int64_t bytes) = 0;
  // Gives the pages of [offset, offset + bytes) back to the system where it can; their content is
  // lost.
  virtual void Release(Storage& storage, int64_t offset_bytes, int64_t bytes) = 0;

  // --- rows ---
  // out[i] = row tokens[i] of the weight, as floats, times `scale`.
  virtual void GetRows(const Weight& weight, std::span<const int32_t> tokens, float scale,
                       const Matrix& out) = 0;
  // out = x / rms(x) * weight, per row of x [n, cols]; weight [1, cols]. In place allowed.
  // Accumulates in double or by a tree, so that the order of threads cannot matter.
  virtual void RmsNorm(const Matrix& x, const Matrix& weight, float epsilon, const Matrix& out) = 0;
  // RMS norm of every run of weight.cols columns on its own (q and k heads of qwen3). In place.
  virtual void RmsNormHeads(const Matrix& x, const Matrix& weight, float epsilon) = 0;
  // out = (x - mean) / sqrt(var + epsilon) * weight + bias, per row. In place allowed. bias may be
  // empty.
  virtual void LayerNorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float epsilon,
                         const Matrix& out) = 0;
  // x += y.
  virtual void Add(const Matrix& x, const Matrix& y) = 0;
  // out = activation(gate) * up; with `up` empty: out = activation(gate). In place allowed.
  virtual void Activate(Activation activation, const Matrix& gate, const Matrix& up,
                        const Matrix& out) = 0;

  // --- products ---
  // out_j (+)= x W_j^T + bias_j for every job. x [n, in]. Quantised weights meet x rounded to 8
  // bits per block of 32 (float scale); F16 and BF16 weights meet x in float32.
  virtual void MatMul(const Matrix& x, std::span<const Linear> jobs) = 0;

  // --- attention ---
  // Rotates every head of x [n, n_heads * head_dim] in place; row i is at positions[i].
  virtual void Rope(const Matrix& x, int head_dim, std::span<const int32_t> positions,
                    const RopeTable& rope) = 0;
  // Multiplies every head of x [n, n_heads * head_dim] by a Hadamard matrix, in place: blocks of as
  // many dimensions as the largest power of two that divides head_dim, each orthogonal and its own
  // inverse. Products of two vectors stay what they are when both are transformed, and a component
  // much larger than the others is spread over its block (arXiv:2404.00456).
  virtual void Hadamard(const Matrix& x, int head_dim) = 0;
  // Converts rows of x [n, heads.size() * dim] to `type` and writes head h's part of row i to slot
  // first_slot[h] + i of heads[h] (keys if `to_keys`, values otherwise).
  struct StoreTarget {
    std::span<const HeadStore> heads;
    std::span<const int64_t> first_slot;  // per head
    TensorType type = TensorType::kF16;
    bool to_keys = true;
  };
  virtual void StoreRows(const Matrix& x, const StoreTarget& target) = 0;
  virtual void Attend(const Attention& attention) = 0;
  // Calls that have nothing to do with each other, such as those of several sequences. Each gives
  // what Attend gives, bit for bit.
  virtual void AttendAll(std::span<const Attention> attentions) {
    for (const Attention& attention : attentions) Attend(attention);
  }

  // --- compression ---
  // The given rows as floats, [rows, dim] on the host. Rows stored after Hadamard are turned back.
  virtual void ReadRows(const HeadRows& head, std::span<const int32_t> rows,
                        std::span<float> out) = 0;
  // Stores `values` [rows, dim] in the given rows, as StoreRows would, after Hadamard where the
  // rows are.
  virtual void WriteRows(const HeadRows& head, std::span<const int32_t> rows,
                         std::span<const float> values) = 0;
  // Writes every sum, of rows as they are stored; all right-hand sides use the rows as they were
  // before the call.
  virtual void SumRows(const HeadRows& head, std::span<const RowSum> sums) = 0;
  // Several searches, say one per head, that share the threads.
  virtual void MostSimilar(std::span<const Similarity> searches) = 0;
  virtual void CompareWithMean(const MeanCosines& comparison) = 0;
  // Turns the keys of rows 0..positions.size() - 1 back from their positions to before RoPE, and
  // from Hadamard, which comes after it.
  virtual void Unrotate(const HeadRows& keys, std::span<const int32_t> positions,
                        const RopeTable& rope) = 0;

  // --- host data ---
  // Adds one query's weights [entry] to total and current.
  virtual AttentionTotals AddAttention(const AttentionSums& sums,
                                       std::span<const float> weights) const = 0;
  // scores[entry] = max(total_factor * total, window_factor * (past + current)); NaN
  // counts as 0.
  virtual void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                              std::span<float> scores) const = 0;
  // Calls body(i) for every i in [0, n) on the threads of the backend, in any order: for what a
  // caller keeps about every head. A body calls no operation of the backend but the two above.
  template <class Body>
  void ForEach(int64_t n, const Body& body) {
    Run(
        n, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
  }

 private:
  virtual void Run(int64_t n, void (*body)(const void* context, int64_t i),
                   const void* context) = 0;
};

struct CpuOptions {
  ThreadPool* pool = nullptr;  // required; outlives the backend
  std::string target;  // empty: the best this machine has; otherwise a name from CpuTargets()
  // Whose cores memory is read for: "intel", "amd", "other" (cpu/processor.h); empty: this
  // machine's.
  std::string vendor = {};
};
// Instruction sets compiled in that this machine can run, best first.
std::vector<std::string> CpuTargets();
// Error: a target this machine or build does not have (lists those it has).
Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

// The plain loops every other backend is compared with: double accumulation, no SIMD, no threads,
// weights dequantised. (Quantised products therefore differ from the CPU backend's by the rounding
// of the activations.)
std::unique_ptr<Backend> MakeReferenceBackend();

// Plain conversions between stored blocks and floats, any supported type (rows of n elements).
void Dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out);
// Only F32, F16, BF16, Q8_0 and Q4_0 (the cache types).
void Quantize(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace winnow::kernels
