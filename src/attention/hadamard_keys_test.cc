#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "attention/layer_pass.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "kernels/backends.h"

// Attention over keys stored after a Hadamard transform equals attention over the keys themselves.
namespace winnow::attention {
namespace {

using cache::Cache;
using cache::Position;
using kernels::Matrix;
using kernels::TensorType;
using Floats = std::vector<float>;

constexpr int kQueryHeads = 4;
constexpr int kKvHeads = 2;
constexpr int64_t kRows = 90;

struct Buffer {
  std::unique_ptr<kernels::Storage> storage;
  Matrix all;
};

// Rows of one sequence: a chunk, and single tokens after it.
class Layer {
 public:
  Layer(kernels::Backend& backend, int dim, bool outliers) : backend_(backend), dim_(dim) {
    Rng rng(11);
    const auto random = [&](int64_t n) {
      Floats values(static_cast<size_t>(n));
      for (float& value : values) value = static_cast<float>(2 * rng.Uniform() - 1);
      return values;
    };
    q_ = random(kRows * kQueryHeads * dim);
    k_ = random(kRows * kKvHeads * dim);
    v_ = random(kRows * kKvHeads * dim);
    if (!outliers) return;
    // One channel in 16 is thirty times larger in keys, and thirty times smaller in queries.
    for (size_t i = 5; i < k_.size(); i += 16) k_[i] *= 30;
    for (size_t i = 5; i < q_.size(); i += 16) q_[i] /= 30;
  }

  std::unique_ptr<Cache> NewCache(TensorType type, bool hadamard,
                                  cache::PositionMode positions = cache::PositionMode::kOriginal) {
    return Cache::Make(backend_, {.shape = {.n_layers = 1,
                                            .n_kv_heads = kKvHeads,
                                            .key_dim = dim_,
                                            .value_dim = dim_},
                                  .key_type = type,
                                  .value_type = TensorType::kF32,
                                  .hadamard_keys = hadamard,
                                  .capacity = 100,
                                  .storage = {.positions = positions}})
        .value();
  }

  // The outputs of attention for all rows, [kRows, kQueryHeads * dim].
  Floats Outputs(Cache& cache) {
    const Buffer q = Make(q_, kQueryHeads), k = Make(k_, kKvHeads), v = Make(v_, kKvHeads);
    const Buffer out = Make(Floats(q_.size()), kQueryHeads);
    const Sequence sequence = {.cache = &cache};
    LayerPass pass(backend_, {.n_heads = kQueryHeads,
                              .key_dim = dim_,
                              .scale = static_cast<float>(1 / std::sqrt(double(dim_)))});
    std::vector<Position> positions(kRows);
    std::iota(positions.begin(), positions.end(), 0);
    for (int64_t first = 0; first < kRows;) {
      const int64_t n = first == 0 ? kRows - 8 : 1;
      const LayerPass::Span span = {.sequence = &sequence, .n_rows = n};
      pass.Start(0, angles_, {&span, 1});
      EXPECT_TRUE(pass.Run({.q = q.all.Rows(first, n),
                            .k = k.all.Rows(first, n),
                            .v = v.all.Rows(first, n),
                            .out = out.all.Rows(first, n),
                            .positions = std::span(positions).subspan(static_cast<size_t>(first),
                                                                      static_cast<size_t>(n))}));
      first += n;
    }
    Floats values(q_.size());
    backend_.Read(out.all, values);
    return values;
  }

  // The largest difference between the keys written to a cache and those read back.
  double KeyError(const Cache& cache) {
    double largest = 0;
    for (int head = 0; head < kKvHeads; ++head) {
      std::vector<int32_t> rows(kRows);
      std::iota(rows.begin(), rows.end(), 0);
      Floats read(static_cast<size_t>(kRows * dim_));
      backend_.ReadRows(cache.keys(0, head), rows, read);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int i = 0; i < dim_; ++i) {
          const float put = k_[static_cast<size_t>((row * kKvHeads + head) * dim_ + i)];
          largest =
              std::max(largest, std::abs(double{read[static_cast<size_t>(row * dim_ + i)]} - put));
        }
      }
    }
    return largest;
  }

 private:
  Buffer Make(const Floats& values, int heads) {
    const int64_t cols = int64_t{heads} * dim_;
    Buffer buffer;
    buffer.storage = backend_.Allocate(kRows * cols * int64_t{sizeof(float)}).value();
    buffer.all = {buffer.storage.get(), 0, kRows, cols, cols};
    backend_.Write(buffer.all, values);
    return buffer;
  }

  kernels::Backend& backend_;
  int dim_;
  Floats q_, k_, v_;
  kernels::RopeTable angles_;  // empty: keys are given as they are stored
};

double Distance(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - b[i], 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class HadamardKeys : public ::testing::TestWithParam<std::string> {
 protected:
  HadamardKeys() {
    if (GetParam() == "reference") {
      backend_ = kernels::MakeReferenceBackend();
    } else {
      backend_ = std::move(kernels::MakeCpuBackend({.pool = &pool_, .target = GetParam()})).value();
    }
  }
  ThreadPool pool_{2};
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_P(HadamardKeys, GiveTheSameAttention) {
  for (const int dim : {32, 64, 96, 128}) {
    Layer layer(*backend_, dim, /*outliers=*/true);
    const auto plain = layer.NewCache(TensorType::kF32, false);
    const auto transformed = layer.NewCache(TensorType::kF32, true);
    EXPECT_LT(Distance(layer.Outputs(*plain), layer.Outputs(*transformed)), 1e-6) << dim;
    EXPECT_EQ(layer.KeyError(*plain), 0);
    EXPECT_LT(layer.KeyError(*transformed), 1e-5) << "reading turns keys back";
  }
}

TEST_P(HadamardKeys, LoseLessToFourBitsWhereChannelsAreLarge) {
  for (const int dim : {32, 64, 128}) {
    Layer layer(*backend_, dim, /*outliers=*/true);
    const Floats exact = layer.Outputs(*layer.NewCache(TensorType::kF32, false));
    const auto plain = layer.NewCache(TensorType::kQ4_0, false);
    const auto transformed = layer.NewCache(TensorType::kQ4_0, true);
    const double error = Distance(exact, layer.Outputs(*plain));
    const double error_transformed = Distance(exact, layer.Outputs(*transformed));
    EXPECT_LT(error_transformed, 0.7 * error) << dim;
    EXPECT_GT(error_transformed, 0);
  }
}

// Keys before RoPE are stored untransformed: Unrotate inverts the transform, and later keys are not
// transformed.
TEST_P(HadamardKeys, EndWhereKeysAreStoredBeforeRope) {
  constexpr int kDim = 32;
  Layer layer(*backend_, kDim, /*outliers=*/false);
  const auto cache = layer.NewCache(TensorType::kF32, true, cache::PositionMode::kReassigned);
  layer.Outputs(*cache);
  EXPECT_TRUE(cache->keys_transformed(0));
  const int64_t n_floats = kRows * 2;
  const auto storage = backend_->Allocate(n_floats * int64_t{sizeof(float)}).value();
  const Matrix table = {storage.get(), 0, kRows, 2, 2};
  Floats cos_sin;
  for (int64_t i = 0; i < kRows; ++i) cos_sin.insert(cos_sin.end(), {1.0f, 0.0f});
  backend_->Write(table, cos_sin);
  cache->Unrotate(0, {.table = table, .n_rotated = 2, .interleaved = false});
  EXPECT_FALSE(cache->keys_transformed(0));
  EXPECT_FALSE(cache->keys(0, 0).hadamard);
  EXPECT_LT(layer.KeyError(*cache), 1e-5);
}

std::vector<std::string> Targets() {
  std::vector<std::string> targets = kernels::CpuTargets();
  targets.emplace_back("reference");
  return targets;
}

INSTANTIATE_TEST_SUITE_P(Backends, HadamardKeys, ::testing::ValuesIn(Targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace winnow::attention
