#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/backends.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/host_attentions.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/cpu/host_views.h"
#include "kernels/cpu/lists.h"
#include "kernels/cpu/mapped_weight.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/simd/targets.h"
#include "kernels/cpu/similarity/mean_cosines.h"
#include "kernels/cpu/similarity/similarity.h"
#include "kernels/cpu/storage.h"
#include "kernels/hadamard.h"
#include "kernels/ops.h"
#include "kernels/overflow.h"
#include "kernels/unrotate.h"

namespace winnow::kernels {
namespace cpu {
namespace {

Result<std::unique_ptr<Storage>> Allocated(int64_t bytes, CpuStorage::Commit filling) {
  WINNOW_ASSIGN(std::unique_ptr<CpuStorage> storage, CpuStorage::Make(bytes, filling));
  return std::unique_ptr<Storage>(std::move(storage));
}

class CpuBackend final : public Backend, public OverflowCounter {
 public:
  CpuBackend(ThreadPool& pool, const Processor& processor, bool batch_invariant)
      : pool_(pool),
        processor_(processor),
        batch_invariant_(batch_invariant),
        attention_scratch_(static_cast<size_t>(pool.n_threads())) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view target() const override { return hwy::TargetName(target_); }
  bool batch_invariant() const override { return batch_invariant_; }

  Result<std::unique_ptr<Storage>> Allocate(int64_t bytes) override {
    return Allocated(bytes, CpuStorage::Commit::kUpfront);
  }

  Result<std::unique_ptr<Storage>> AllocateGrowing(int64_t bytes) override {
    return Allocated(bytes, CpuStorage::Commit::kGrowing);
  }

  void UseHugePages(Storage& storage, std::span<const ByteRange> used) override {
    static_cast<CpuStorage&>(storage).UseHugePages(used);
  }

  Result<std::unique_ptr<Weight>> LoadWeight(const WeightSource& source) override {
    const int64_t expected = gguf::RowBytes(source.type, source.cols) * source.rows;
    if (static_cast<int64_t>(source.bytes.size()) != expected) {
      return Error{std::string(source.name) + ": " + std::to_string(source.bytes.size()) +
                   " bytes of weights, expected " + std::to_string(expected)};
    }
    return std::unique_ptr<Weight>(std::make_unique<MappedWeight>(source));
  }

  void Write(const Matrix& to, std::span<const float> from) override {
    const HostRows rows = Rows(to);
    WINNOW_CHECK(static_cast<int64_t>(from.size()) == rows.rows * rows.cols);
    for (int64_t row = 0; row < rows.rows; ++row) {
      std::copy_n(from.data() + row * rows.cols, rows.cols, rows.Row(row));
    }
  }

  void Read(const Matrix& from, std::span<float> to) override {
    const HostRows rows = Rows(from);
    WINNOW_CHECK(static_cast<int64_t>(to.size()) == rows.rows * rows.cols);
    for (int64_t row = 0; row < rows.rows; ++row) {
      std::copy_n(rows.Row(row), rows.cols, to.data() + row * rows.cols);
    }
  }

  void MoveRows(Storage& storage, int64_t offset_bytes, int64_t bytes_per_row,
                std::span<const int32_t> from, std::span<const int32_t> to) override {
    WINNOW_CHECK(from.size() == to.size());
    std::byte* rows = Bytes(&storage) + offset_bytes;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      std::memcpy(rows + to[i] * bytes_per_row, rows + from[i] * bytes_per_row,
                  static_cast<size_t>(bytes_per_row));
    }
  }

  void ReadBytes(const Storage& from, int64_t offset_bytes, std::span<std::byte> to) override {
    const auto n = static_cast<int64_t>(to.size());
    WINNOW_CHECK(offset_bytes >= 0 && offset_bytes + n <= from.size_bytes());
    if (n > 0) std::memcpy(to.data(), Bytes(const_cast<Storage*>(&from)) + offset_bytes, to.size());
  }
  void WriteBytes(Storage& to, int64_t offset_bytes, std::span<const std::byte> from) override {
    const auto n = static_cast<int64_t>(from.size());
    WINNOW_CHECK(offset_bytes >= 0 && offset_bytes + n <= to.size_bytes());
    if (n > 0) std::memcpy(Bytes(&to) + offset_bytes, from.data(), from.size());
  }
  void CopyBytes(const Storage& from, int64_t from_offset_bytes, Storage& to,
                 int64_t to_offset_bytes, int64_t bytes) override {
    WINNOW_CHECK(from_offset_bytes + bytes <= from.size_bytes() &&
                 to_offset_bytes + bytes <= to.size_bytes());
    std::memcpy(Bytes(&to) + to_offset_bytes,
                Bytes(const_cast<Storage*>(&from)) + from_offset_bytes, static_cast<size_t>(bytes));
  }

  void Release(Storage& storage, int64_t offset_bytes, int64_t bytes) override {
    static_cast<CpuStorage&>(storage).Release(offset_bytes, bytes);
  }

  void GetRows(const Weight& weight, std::span<const int32_t> tokens, const Matrix& out) override {
    const auto& w = static_cast<const MappedWeight&>(weight);
    const HostRows rows = Rows(out);
    WINNOW_CHECK(rows.cols == w.cols() && rows.rows == static_cast<int64_t>(tokens.size()));
    pool_.ParallelFor(rows.rows, [&](int64_t i, int) {
      const int32_t token = tokens[static_cast<size_t>(i)];
      WINNOW_CHECK(token >= 0 && token < w.rows());
      Dequantize(w.type(), w.Row(token), {rows.Row(i), static_cast<size_t>(rows.cols)});
    });
  }

  void RmsNorm(const Matrix& x, const Matrix& weight, float epsilon, const Matrix& out) override {
    WINNOW_CHECK(weight.cols == x.cols && out.rows == x.rows && out.cols == x.cols);
    rows_.rms_norm(Rows(x), Rows(weight).data, epsilon, Rows(out), pool_);
  }

  void RmsNormHeads(const Matrix& x, const Matrix& weight, float epsilon) override {
    WINNOW_CHECK(x.cols % weight.cols == 0);
    rows_.rms_norm_heads(Rows(x), Rows(weight).data, weight.cols, epsilon, pool_);
  }

  void LayerNorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float epsilon,
                 const Matrix& out) override {
    WINNOW_CHECK(weight.cols == x.cols && (bias.empty() || bias.cols == x.cols));
    WINNOW_CHECK(out.rows == x.rows && out.cols == x.cols);
    rows_.layer_norm(Rows(x), Rows(weight).data, Rows(bias).data, epsilon, Rows(out), pool_);
  }

  void Activate(Activation activation, const Matrix& gate, const Matrix& up,
                const Matrix& out) override {
    WINNOW_CHECK(out.rows == gate.rows && out.cols == gate.cols);
    WINNOW_CHECK(up.empty() || (up.rows == gate.rows && up.cols == gate.cols));
    rows_.activate(activation, Rows(gate), Rows(up), Rows(out), pool_);
  }

  void MatMul(const Matrix& x, std::span<const Linear> jobs,
              const std::function<void()>& overlapped) override {
    jobs_.clear();
    for (const Linear& linear : jobs) {
      const auto& w = static_cast<const MappedWeight&>(*linear.weight);
      WINNOW_CHECK(w.cols() == x.cols && linear.out.rows == x.rows && linear.out.cols == w.rows());
      WINNOW_CHECK(linear.bias.empty() || linear.bias.cols == w.rows());
      jobs_.push_back({.type = w.type(),
                       .weight = w.data(),
                       .rows = w.rows(),
                       .bias = Rows(linear.bias).data,
                       .out = Rows(linear.out).data,
                       .out_stride = linear.out.stride,
                       .accumulate = linear.accumulate});
    }
    cpu::MatMul({Rows(x).data, x.rows, x.cols, x.stride, batch_invariant_}, jobs_, processor_,
                matmul_scratch_, pool_, overlapped);
  }

  void Rope(const Matrix& x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& rope) override {
    WINNOW_CHECK(static_cast<int64_t>(positions.size()) == x.rows && x.cols % head_dim == 0);
    WINNOW_CHECK(rope.n_rotated <= head_dim && rope.table.cols == rope.n_rotated);
    rows_.rope(Rows(x),
               {.table = Rows(rope.table),
                .head_dim = head_dim,
                .n_rotated = rope.n_rotated,
                .interleaved = rope.interleaved,
                .positions = positions},
               pool_);
  }

  void Hadamard(const Matrix& x, int head_dim) override {
    WINNOW_CHECK(x.cols % head_dim == 0);
    rows_.hadamard(Rows(x), head_dim, pool_);
  }

  void StoreRows(const Matrix& x, const StoreTarget& target) override {
    WINNOW_CHECK(target.heads.size() == target.first_slot.size() && IsCacheType(target.type));
    stores_.clear();
    for (const HeadStore& head : target.heads) {
      stores_.push_back(target.to_keys ? Bytes(head.keys) + head.keys_offset_bytes
                                       : Bytes(head.values) + head.values_offset_bytes);
    }
    rows_.store_rows(Rows(x),
                     {.heads = stores_,
                      .first_slot = target.first_slot,
                      .type = target.type,
                      .n_overflowed = &n_overflowed_},
                     pool_);
  }
  int64_t n_overflowed() const override { return n_overflowed_; }

  void Attend(const Attention& attention) override {
    cpu::Attend(host_attentions_.View({&attention, 1}).front(), processor_,
                attention_scratch_.front(), pool_);
  }

  // With one call per thread, threads do not wait inside a call. The remaining calls, fewer than
  // threads, run one after another on all threads.
  void AttendAll(std::span<const Attention> attentions) override {
    const std::span<const HostAttention> calls = host_attentions_.View(attentions);
    const auto n = static_cast<int64_t>(calls.size());
    const int64_t n_alone = n - n % pool_.n_threads();
    pool_.ParallelFor(n_alone, [&](int64_t i, int thread) {
      cpu::Attend(calls[static_cast<size_t>(i)], processor_,
                  attention_scratch_[static_cast<size_t>(thread)], one_thread_);
    });
    for (int64_t i = n_alone; i < n; ++i) {
      cpu::Attend(calls[static_cast<size_t>(i)], processor_, attention_scratch_.front(), pool_);
    }
  }

  void ReadRows(const HeadRows& head, std::span<const int32_t> rows,
                std::span<float> out) override {
    cpu::ReadRows(Rows(head), rows, out, pool_);
    if (!head.hadamard) return;
    const auto n_rows = static_cast<int64_t>(rows.size());
    rows_.hadamard({.data = out.data(), .rows = n_rows, .cols = head.dim, .stride = head.dim},
                   head.dim, pool_);
  }

  void WriteRows(const HeadRows& head, std::span<const int32_t> rows,
                 std::span<const float> values) override {
    const HostHeadRows to = Rows(head);
    const auto dim = static_cast<size_t>(head.dim);
    WINNOW_CHECK(values.size() == rows.size() * dim);
    std::vector<float> transformed;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::span<const float> row = values.subspan(i * dim, dim);
      if (head.hadamard) {
        transformed.assign(row.begin(), row.end());
        TransformHead(transformed);
        row = transformed;
      }
      WINNOW_CHECK(rows[i] >= 0 && rows[i] < to.n_rows);
      Quantize(head.type, row,
               {to.data + rows[i] * to.row_bytes, static_cast<size_t>(to.row_bytes)});
    }
  }

  void SumRows(const HeadRows& head, std::span<const RowSum> sums) override {
    cpu::SumRows(Rows(head), sums, sum_scratch_, pool_);
  }

  void Unrotate(const HeadRows& keys, std::span<const int32_t> positions,
                const RopeTable& rope) override {
    const HostHeadRows rows = Rows(keys);
    const HostRows table = Rows(rope.table);
    WINNOW_CHECK(static_cast<int64_t>(positions.size()) <= rows.n_rows);
    // Rows that a thread claims at a time; they share one working vector.
    constexpr int64_t kRowsAtOnce = 256;
    const auto n = static_cast<int64_t>(positions.size());
    pool_.ParallelFor((n + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t part, int) {
      std::vector<float> key(static_cast<size_t>(keys.dim));
      for (int64_t i = part * kRowsAtOnce; i < std::min(n, (part + 1) * kRowsAtOnce); ++i) {
        const int32_t position = positions[static_cast<size_t>(i)];
        WINNOW_CHECK(position >= 0 && position < table.rows);
        UnrotateRow(keys, {rows.data + i * rows.row_bytes, static_cast<size_t>(rows.row_bytes)},
                    {table.Row(position), static_cast<size_t>(table.cols)}, rope, key);
      }
    });
  }

  void CosinesToMean(std::span<const MeanCosines> heads) override {
    mean_cosines_.clear();
    for (const MeanCosines& h : heads) mean_cosines_.push_back({Rows(h.head), h.rows, h.cosines});
    cpu::CosinesToMean(mean_cosines_, target_, similarity_scratch_, pool_);
  }

  AttentionTotals AddAttention(const AttentionSums& sums,
                               std::span<const float> weights) const override {
    WINNOW_CHECK(weights.size() == sums.total.size() && sums.past.size() == sums.total.size() &&
                 sums.current.size() == sums.total.size());
    return lists_.add_attention(sums, weights);
  }

  void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                      std::span<float> scores) const override {
    WINNOW_CHECK(scores.size() == sums.total.size());
    lists_.score_attention(sums, total_factor, window_factor, scores);
  }

  void Multiply(const HostProduct& product) const override { products_.multiply(product); }
  void ExpMinusMax(std::span<float> x, float max) const override { products_.exp_below(x, max); }

  void MostSimilar(std::span<const Similarity> searches) override {
    using Measure = Similarity::Measure;
    searches_.clear();
    for (const Similarity& s : searches) {
      HostHeadRows first = Rows(s.measure == Measure::kValues ? s.values : s.keys);
      const bool both = s.measure == Measure::kProduct;
      // Rows without a rank count as out of range, so that CheckRows catches them.
      if (!s.ranks.empty()) {
        first.n_rows = std::min(first.n_rows, static_cast<int64_t>(s.ranks.size()));
      }
      searches_.push_back({.all_kinds = {first, both ? Rows(s.values) : HostHeadRows{}},
                           .n_kinds = both ? size_t{2} : size_t{1},
                           .from = s.from,
                           .to = s.to,
                           .ranks = s.ranks,
                           .min_similarity = s.min_similarity,
                           .best = s.best,
                           .best_to = s.best_to});
    }
    cpu::MostSimilar(searches_, target_, similarity_scratch_, pool_);
  }

 private:
  void Run(int64_t n, void (*body)(const void* context, int64_t i), const void* context) override {
    pool_.ParallelFor(n, [&](int64_t i, int) { body(context, i); });
  }

  ThreadPool& pool_;
  const Processor processor_;
  const bool batch_invariant_;
  const int64_t target_ = processor_.target;
  const RowKernels& rows_ = RowKernelsFor(target_);
  const ListKernels& lists_ = ListKernelsFor(target_);
  const ProductKernels& products_ = ProductKernelsFor(target_);
  MatMulScratch matmul_scratch_;
  std::vector<AttentionScratch> attention_scratch_;  // per thread
  ThreadPool one_thread_{1};  // runs loops on the calling thread; used by many at once
  std::vector<float> sum_scratch_;
  std::vector<float> similarity_scratch_;
  // Host views of a call's handles; members, so that a decode step allocates nothing.
  std::vector<MatMulJob> jobs_;
  std::vector<std::byte*> stores_;
  std::atomic<int64_t> n_overflowed_{0};
  HostAttentions host_attentions_{lists_};
  std::vector<HostSimilarity> searches_;
  std::vector<HostMeanCosines> mean_cosines_;
};

// Target bits, best first. Includes the fallback, which runs everywhere, even if Highway does not
// list it.
std::vector<int64_t> TargetBits() {
  constexpr int64_t kFallback = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);
  std::vector<int64_t> bits;
  for (int64_t rest = (hwy::SupportedTargets() | kFallback) & HWY_TARGETS; rest != 0;
       rest &= rest - 1) {
    bits.push_back(rest & -rest);  // in Highway's order the lowest bit is the best
  }
  return bits;
}

}  // namespace
}  // namespace cpu

std::vector<std::string> CpuTargets() {
  std::vector<std::string> names;
  for (const int64_t bit : cpu::TargetBits()) names.emplace_back(hwy::TargetName(bit));
  return names;
}

Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options) {
  WINNOW_CHECK(options.pool != nullptr);
  const std::optional<cpu::CpuFamily> family = cpu::CpuFamilyFromName(options.family);
  if (!family) {
    return Error{"cpu: found CPU family " + options.family +
                 ", expected intel, amd, zen5 or other"};
  }
  std::string known;
  for (const int64_t bit : cpu::TargetBits()) {
    const std::string name = hwy::TargetName(bit);
    if (options.target.empty() || options.target == name) {
      return std::unique_ptr<Backend>(std::make_unique<cpu::CpuBackend>(
          *options.pool, cpu::MakeProcessor(*family, bit), options.batch_invariant));
    }
    known += (known.empty() ? "" : ", ") + name;
  }
  if (known.empty()) {
    return Error{
        "cpu: found a processor without SSE4.2, AES or CLMUL, which this build expects; build "
        "winnow with -DCMAKE_CXX_FLAGS=-march=x86-64"};
  }
  return Error{"cpu: target " + options.target + " is not available here; available: " + known};
}

}  // namespace winnow::kernels
