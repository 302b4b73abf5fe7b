#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/half.h"
#include "base/result.h"
#include "kernels/attention.h"
#include "kernels/compaction.h"
#include "kernels/linear.h"
#include "kernels/memory.h"

// The operations of a transformer, and the memory they work on. Nothing above this room touches the
// elements of a big tensor: it holds handles and calls a Backend. Plans, taps, tokens and positions
// are host data.
namespace winnow::kernels {

// A device and its kernels. Every call completes before it returns; one caller at a time. Results
// are the same bit for bit with any number of threads.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;  // "cpu", "reference"
  virtual std::string_view target()
      const = 0;  // instruction set in use: "AVX3_DL", "AVX2", "scalar"
  // Whether a row of MatMul's result has the same bits whatever other rows are in the call.
  virtual bool batch_invariant() const { return false; }

  // --- memory ---
  // Zeroed memory. Pages are committed as they are first written where the system allows it.
  // Error: the system refuses the memory; the message says how many bytes were requested.
  virtual Result<std::unique_ptr<Storage>> Allocate(int64_t bytes) = 0;
  // The same for memory that fills slowly and is released in parts: committed in the system's
  // smallest pages until UseHugePages.
  virtual Result<std::unique_ptr<Storage>> AllocateGrowing(int64_t bytes) {
    return Allocate(bytes);
  }
  // Tells which parts of such memory are in use or about to be, in ascending order. The backend may
  // put regions with little unused space on huge pages, which are faster to read.
  virtual void UseHugePages(Storage& storage, std::span<const ByteRange> used) {
    (void)storage;
    (void)used;
  }
  virtual Result<std::unique_ptr<Weight>> LoadWeight(const WeightSource& source) = 0;
  virtual void Write(const Matrix& to, std::span<const float> from) = 0;  // rows packed
  virtual void Read(const Matrix& from, std::span<float> to) = 0;         // rows packed
  // Copies rows of `bytes_per_row` bytes within a storage: row from[i] to row to[i], in the order
  // of i.
  virtual void MoveRows(Storage& storage, int64_t offset_bytes, int64_t bytes_per_row,
                        std::span<const int32_t> from, std::span<const int32_t> to) = 0;
  // Raw bytes of a storage. Requires: the range lies within it.
  virtual void ReadBytes(const Storage& from, int64_t offset_bytes, std::span<std::byte> to) = 0;
  virtual void WriteBytes(Storage& to, int64_t offset_bytes, std::span<const std::byte> from) = 0;
  virtual void CopyBytes(const Storage& from, int64_t from_offset_bytes, Storage& to,
                         int64_t to_offset_bytes, int64_t bytes) = 0;
  // Returns the pages of [offset, offset + bytes) to the system if it can; their content is lost.
  virtual void Release(Storage& storage, int64_t offset_bytes, int64_t bytes) = 0;

  // --- rows ---
  // out[i] = row tokens[i] of the weight, as floats.
  virtual void GetRows(const Weight& weight, std::span<const int32_t> tokens,
                       const Matrix& out) = 0;
  // out = x / rms(x) * weight, per row of x [n, cols]; weight [1, cols]. In place allowed.
  // Sums in double or as a fixed tree, so that the result does not depend on the threads.
  virtual void RmsNorm(const Matrix& x, const Matrix& weight, float epsilon, const Matrix& out) = 0;
  // RMS norm of each run of weight.cols columns separately (q and k heads of qwen3). In place.
  virtual void RmsNormHeads(const Matrix& x, const Matrix& weight, float epsilon) = 0;
  // out = (x - mean) / sqrt(var + epsilon) * weight + bias, per row. In place allowed. bias may be
  // empty.
  virtual void LayerNorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float epsilon,
                         const Matrix& out) = 0;
  // out = activation(gate) * up; with `up` empty: out = activation(gate). In place allowed.
  virtual void Activate(Activation activation, const Matrix& gate, const Matrix& up,
                        const Matrix& out) = 0;

  // --- products ---
  // out_j (+)= x W_j^T + bias_j for every job. x [n, in]. For quantised weights, x is rounded to 8
  // bits per block of 32 (float scale). F16 and BF16 weights are multiplied with x in float32; a
  // CPU that multiplies BF16 (AVX512_BF16) may round x to BF16 for BF16 weights. `overlapped` is
  // host work that does not depend on the products. It runs once before MatMul returns, and the
  // other threads need not wait for it. It may call the operations under "memory", "compression"
  // and "host data".
  virtual void MatMul(const Matrix& x, std::span<const Linear> jobs,
                      const std::function<void()>& overlapped = {}) = 0;

  // --- attention ---
  // Rotates every head of x [n, n_heads * head_dim] in place; row i is at positions[i].
  virtual void Rope(const Matrix& x, int head_dim, std::span<const int32_t> positions,
                    const RopeTable& rope) = 0;
  // Multiplies every head of x [n, n_heads * head_dim] by a Hadamard matrix, in place. A block has
  // as many dimensions as the largest power of two that divides head_dim; each block is orthogonal
  // and its own inverse. Transforming both vectors preserves their dot product, and an outlier
  // component is spread over its block (arXiv:2404.00456).
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
  // Independent calls, such as those of several sequences. Each result is bit for bit that of
  // Attend.
  virtual void AttendAll(std::span<const Attention> attentions) {
    for (const Attention& attention : attentions) Attend(attention);
  }

  // --- compression ---
  // Reads the given rows as floats, [rows, dim], on the host. Reverses Hadamard if head.hadamard.
  virtual void ReadRows(const HeadRows& head, std::span<const int32_t> rows,
                        std::span<float> out) = 0;
  // Stores `values` [rows, dim] in the given rows as StoreRows would, after Hadamard if
  // head.hadamard.
  virtual void WriteRows(const HeadRows& head, std::span<const int32_t> rows,
                         std::span<const float> values) = 0;
  // Writes every sum. Sums stored rows without reversing Hadamard; all right-hand sides use the
  // rows as they were before the call.
  virtual void SumRows(const HeadRows& head, std::span<const RowSum> sums) = 0;
  // Runs several searches, for example one per head, that share the threads.
  virtual void MostSimilar(std::span<const Similarity> searches) = 0;
  // Computes the cosines of several heads, which share the threads.
  virtual void CosinesToMean(std::span<const MeanCosines> heads) = 0;
  // Reverses RoPE on the keys of rows 0..positions.size() - 1, from their positions; reverses
  // Hadamard, which follows RoPE, first. Stores the keys again.
  virtual void Unrotate(const HeadRows& keys, std::span<const int32_t> positions,
                        const RopeTable& rope) = 0;

  // --- host data ---
  // Adds one query's weights [entry] to `total` and `current`. Returns the sums over the entries.
  virtual AttentionTotals AddAttention(const AttentionSums& sums,
                                       std::span<const float> weights) const = 0;
  // scores[entry] = max(total_factor * total, window_factor * (past + current)); NaN
  // counts as 0.
  virtual void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                              std::span<float> scores) const = 0;
  // A product of float matrices on the calling thread. Sums in float, in the order of k.
  virtual void Multiply(const HostProduct& product) const = 0;
  // x[i] = e^min(x[i] - max, kMaxExponent), 0 for NaN: softmax weights before normalisation.
  virtual void ExpMinusMax(std::span<float> x, float max) const = 0;
  // Calls body(i) for every i in [0, n) on the backend's threads, in any order: for per-head host
  // data of a caller. A body may call only the operations on host data above, and CopyBytes to a
  // range that no other body writes.
  template <class Body>
  void ForEach(int64_t n, const Body& body) {
    Run(
        n, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
  }

 private:
  virtual void Run(int64_t n, void (*body)(const void* context, int64_t i),
                   const void* context) = 0;
};

}  // namespace winnow::kernels
