#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/backends.h"
#include "kernels/hadamard.h"
#include "kernels/ops.h"
#include "kernels/overflow.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/compression.h"
#include "kernels/unrotate.h"

namespace winnow::kernels {
namespace {

class HostStorage final : public Storage {
 public:
  HostStorage(std::byte* bytes, int64_t size_bytes) : bytes_(bytes), size_bytes_(size_bytes) {}
  ~HostStorage() override { std::free(bytes_); }
  HostStorage(const HostStorage&) = delete;
  HostStorage& operator=(const HostStorage&) = delete;

  int64_t size_bytes() const override { return size_bytes_; }
  std::byte* bytes() { return bytes_; }

 private:
  std::byte* bytes_;
  int64_t size_bytes_;
};

std::byte* Bytes(Storage* storage) { return static_cast<HostStorage*>(storage)->bytes(); }

float* Row(const Matrix& m, int64_t row) {
  return reinterpret_cast<float*>(Bytes(m.storage)) + m.offset + row * m.stride;
}

class FloatWeight final : public Weight {
 public:
  FloatWeight(TensorType type, int64_t rows, int64_t cols, std::vector<float> values)
      : type_(type), rows_(rows), cols_(cols), values_(std::move(values)) {}

  TensorType type() const override { return type_; }
  int64_t rows() const override { return rows_; }
  int64_t cols() const override { return cols_; }
  const float* Row(int64_t row) const { return values_.data() + row * cols_; }

 private:
  TensorType type_;
  int64_t rows_;
  int64_t cols_;
  std::vector<float> values_;
};

double Activated(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
  return 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
}

void NormalizeRms(const float* x, const float* weight, int64_t n, double epsilon, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

class ReferenceBackend final : public Backend, public OverflowCounter {
 public:
  std::string_view name() const override { return "reference"; }
  std::string_view target() const override { return "scalar"; }

  Result<std::unique_ptr<Storage>> Allocate(int64_t bytes) override {
    // At least one byte, so that a null pointer always means that the allocation failed.
    auto* memory = bytes < 0 ? nullptr : std::calloc(static_cast<size_t>(bytes) + 1, 1);
    if (memory == nullptr) {
      return Error{"memory: cannot allocate " + std::to_string(bytes) + " bytes"};
    }
    return std::unique_ptr<Storage>(
        std::make_unique<HostStorage>(static_cast<std::byte*>(memory), bytes));
  }

  Result<std::unique_ptr<Weight>> LoadWeight(const WeightSource& s) override {
    const int64_t expected = gguf::RowBytes(s.type, s.cols) * s.rows;
    if (static_cast<int64_t>(s.bytes.size()) != expected) {
      return Error{std::string(s.name) + ": " + std::to_string(s.bytes.size()) +
                   " bytes of weights, expected " + std::to_string(expected)};
    }
    std::vector<float> values(static_cast<size_t>(s.rows * s.cols));
    Dequantize(s.type, s.bytes, values);
    return std::unique_ptr<Weight>(
        std::make_unique<FloatWeight>(s.type, s.rows, s.cols, std::move(values)));
  }

  void Write(const Matrix& to, std::span<const float> from) override {
    WINNOW_CHECK(static_cast<int64_t>(from.size()) == to.rows * to.cols);
    for (int64_t row = 0; row < to.rows; ++row) {
      std::memcpy(Row(to, row), from.data() + row * to.cols, to.cols * sizeof(float));
    }
  }

  void Read(const Matrix& from, std::span<float> to) override {
    WINNOW_CHECK(static_cast<int64_t>(to.size()) == from.rows * from.cols);
    for (int64_t row = 0; row < from.rows; ++row) {
      std::memcpy(to.data() + row * from.cols, Row(from, row), from.cols * sizeof(float));
    }
  }

  void MoveRows(Storage& storage, int64_t offset_bytes, int64_t bytes_per_row,
                std::span<const int32_t> from, std::span<const int32_t> to) override {
    WINNOW_CHECK(from.size() == to.size());
    std::byte* rows = Bytes(&storage) + offset_bytes;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i] == to[i]) continue;
      std::memcpy(rows + to[i] * bytes_per_row, rows + from[i] * bytes_per_row, bytes_per_row);
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

  // calloc's memory cannot be released in part, so the content stays.
  void Release(Storage&, int64_t, int64_t) override {}

  void GetRows(const Weight& weight, std::span<const int32_t> tokens, const Matrix& out) override {
    const auto& w = static_cast<const FloatWeight&>(weight);
    WINNOW_CHECK(out.cols == w.cols() && out.rows == static_cast<int64_t>(tokens.size()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::copy_n(w.Row(tokens[i]), w.cols(), Row(out, static_cast<int64_t>(i)));
    }
  }

  void RmsNorm(const Matrix& x, const Matrix& weight, float epsilon, const Matrix& out) override {
    WINNOW_CHECK(weight.cols == x.cols);
    for (int64_t row = 0; row < x.rows; ++row) {
      NormalizeRms(Row(x, row), Row(weight, 0), x.cols, epsilon, Row(out, row));
    }
  }

  void RmsNormHeads(const Matrix& x, const Matrix& weight, float epsilon) override {
    WINNOW_CHECK(x.cols % weight.cols == 0);
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t first = 0; first < x.cols; first += weight.cols) {
        float* head = Row(x, row) + first;
        NormalizeRms(head, Row(weight, 0), weight.cols, epsilon, head);
      }
    }
  }

  void LayerNorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float epsilon,
                 const Matrix& out) override {
    WINNOW_CHECK(weight.cols == x.cols);
    const double n = static_cast<double>(x.cols);
    for (int64_t row = 0; row < x.rows; ++row) {
      const float* from = Row(x, row);
      float* to = Row(out, row);
      double sum = 0;
      for (int64_t i = 0; i < x.cols; ++i) sum += from[i];
      const double mean = sum / n;
      double squares = 0;
      for (int64_t i = 0; i < x.cols; ++i) squares += (from[i] - mean) * (from[i] - mean);
      const double scale = 1 / std::sqrt(squares / n + epsilon);
      for (int64_t i = 0; i < x.cols; ++i) {
        const double add = bias.empty() ? 0 : Row(bias, 0)[i];
        to[i] = static_cast<float>((from[i] - mean) * scale * Row(weight, 0)[i] + add);
      }
    }
  }

  void Activate(Activation activation, const Matrix& gate, const Matrix& up,
                const Matrix& out) override {
    for (int64_t row = 0; row < gate.rows; ++row) {
      for (int64_t col = 0; col < gate.cols; ++col) {
        const double factor = up.empty() ? 1 : Row(up, row)[col];
        Row(out, row)[col] =
            static_cast<float>(Activated(activation, Row(gate, row)[col]) * factor);
      }
    }
  }

  void MatMul(const Matrix& x, std::span<const Linear> jobs,
              const std::function<void()>& overlapped) override {
    if (overlapped) overlapped();
    for (const Linear& job : jobs) {
      const auto& w = static_cast<const FloatWeight&>(*job.weight);
      WINNOW_CHECK(w.cols() == x.cols && job.out.cols == w.rows() && job.out.rows == x.rows);
      for (int64_t row = 0; row < x.rows; ++row) {
        const float* in = Row(x, row);
        float* out = Row(job.out, row);
        for (int64_t feature = 0; feature < w.rows(); ++feature) {
          double sum = job.bias.empty() ? 0 : Row(job.bias, 0)[feature];
          if (job.accumulate) sum += out[feature];
          for (int64_t i = 0; i < x.cols; ++i) {
            sum += static_cast<double>(in[i]) * w.Row(feature)[i];
          }
          out[feature] = static_cast<float>(sum);
        }
      }
    }
  }

  void Rope(const Matrix& x, int head_dim, std::span<const int32_t> positions,
            const RopeTable& rope) override {
    WINNOW_CHECK(x.cols % head_dim == 0 && rope.n_rotated <= head_dim);
    const int n_pairs = rope.n_rotated / 2;
    for (int64_t row = 0; row < x.rows; ++row) {
      WINNOW_CHECK(positions[row] >= 0 && positions[row] < rope.table.rows);
      const float* cosines = Row(rope.table, positions[row]);
      const float* sines = cosines + n_pairs;
      for (int64_t first = 0; first < x.cols; first += head_dim) {
        float* head = Row(x, row) + first;
        for (int pair = 0; pair < n_pairs; ++pair) {
          float& a = head[rope.interleaved ? 2 * pair : pair];
          float& b = head[rope.interleaved ? 2 * pair + 1 : pair + n_pairs];
          const double was_a = a;
          const double was_b = b;
          a = static_cast<float>(was_a * cosines[pair] - was_b * sines[pair]);
          b = static_cast<float>(was_a * sines[pair] + was_b * cosines[pair]);
        }
      }
    }
  }

  void Hadamard(const Matrix& x, int head_dim) override {
    WINNOW_CHECK(x.cols % head_dim == 0);
    for (int64_t row = 0; row < x.rows; ++row) {
      for (int64_t first = 0; first < x.cols; first += head_dim) {
        TransformHead({Row(x, row) + first, static_cast<size_t>(head_dim)});
      }
    }
  }

  void StoreRows(const Matrix& x, const StoreTarget& t) override {
    const auto n_heads = static_cast<int64_t>(t.heads.size());
    const int64_t dim = x.cols / n_heads;
    WINNOW_CHECK(dim * n_heads == x.cols && IsCacheType(t.type));
    const int64_t row_bytes = gguf::RowBytes(t.type, dim);
    for (int64_t head = 0; head < n_heads; ++head) {
      const HeadStore& store = t.heads[head];
      std::byte* rows = t.to_keys ? Bytes(store.keys) + store.keys_offset_bytes
                                  : Bytes(store.values) + store.values_offset_bytes;
      for (int64_t row = 0; row < x.rows; ++row) {
        const std::span<const float> values = {Row(x, row) + head * dim, static_cast<size_t>(dim)};
        n_overflowed_ += std::count_if(values.begin(), values.end(), [&](float value) {
          return std::abs(value) >= CacheLimit(t.type);
        });
        Quantize(t.type, values,
                 {rows + (t.first_slot[head] + row) * row_bytes, static_cast<size_t>(row_bytes)});
      }
    }
  }

  int64_t n_overflowed() const override { return n_overflowed_; }

  void Attend(const Attention& attention) override { reference::Attend(attention, &Bytes); }

  void ReadRows(const HeadRows& head, std::span<const int32_t> rows,
                std::span<float> out) override {
    reference::ReadRows(head, rows, out, &Bytes);
    if (!head.hadamard) return;
    const auto dim = static_cast<size_t>(head.dim);
    for (size_t i = 0; i < rows.size(); ++i) TransformHead(out.subspan(i * dim, dim));
  }

  void WriteRows(const HeadRows& head, std::span<const int32_t> rows,
                 std::span<const float> values) override {
    const auto dim = static_cast<size_t>(head.dim);
    const auto row_bytes = static_cast<size_t>(gguf::RowBytes(head.type, head.dim));
    WINNOW_CHECK(values.size() == rows.size() * dim);
    std::vector<float> transformed;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::span<const float> row = values.subspan(i * dim, dim);
      if (head.hadamard) {
        transformed.assign(row.begin(), row.end());
        TransformHead(transformed);
        row = transformed;
      }
      std::byte* to =
          Bytes(head.storage) + head.offset_bytes + static_cast<size_t>(rows[i]) * row_bytes;
      Quantize(head.type, row, {to, row_bytes});
    }
  }

  void SumRows(const HeadRows& head, std::span<const RowSum> sums) override {
    reference::SumRows(head, sums, &Bytes);
  }

  AttentionTotals AddAttention(const AttentionSums& sums,
                               std::span<const float> weights) const override {
    return reference::AddAttention(sums, weights);
  }

  void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                      std::span<float> scores) const override {
    reference::ScoreAttention(sums, total_factor, window_factor, scores);
  }

  void Multiply(const HostProduct& p) const override {
    Check(p);
    for (int64_t row = 0; row < p.out.rows; ++row) {
      for (int64_t col = 0; col < p.out.cols; ++col) {
        float& out = p.out.data[row * p.out.stride + col];
        double sum = p.accumulate ? out : 0;
        for (int64_t k = 0; k < p.a.cols; ++k) {
          sum += double{p.a.data[row * p.a.stride + k]} * p.b.data[k * p.b.stride + col];
        }
        out = static_cast<float>(sum);
      }
    }
  }

  void ExpMinusMax(std::span<float> x, float max) const override {
    for (float& one : x) {
      one = std::isnan(one - max) ? 0 : std::exp(std::min(one - max, kMaxExponent));
    }
  }

  void MostSimilar(std::span<const Similarity> searches) override {
    for (const Similarity& search : searches) reference::MostSimilar(search, &Bytes);
  }

  void CosinesToMean(std::span<const MeanCosines> heads) override {
    for (const MeanCosines& head : heads) reference::CosinesToMean(head, &Bytes);
  }

  void Unrotate(const HeadRows& keys, std::span<const int32_t> positions,
                const RopeTable& rope) override {
    const auto row_bytes = static_cast<size_t>(gguf::RowBytes(keys.type, keys.dim));
    std::vector<float> cos_sin(static_cast<size_t>(rope.table.cols));
    std::vector<float> key(static_cast<size_t>(keys.dim));
    for (size_t i = 0; i < positions.size(); ++i) {
      Read(rope.table.Rows(positions[i], 1), cos_sin);
      std::byte* row = Bytes(keys.storage) + keys.offset_bytes + i * row_bytes;
      UnrotateRow(keys, {row, row_bytes}, cos_sin, rope, key);
    }
  }

 private:
  void Run(int64_t n, void (*body)(const void* context, int64_t i), const void* context) override {
    for (int64_t i = 0; i < n; ++i) body(context, i);
  }

  int64_t n_overflowed_ = 0;
};

}  // namespace

std::unique_ptr<Backend> MakeReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace winnow::kernels
