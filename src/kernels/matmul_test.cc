// Matrix products of the CPU backend, on every instruction set this machine has, against loops in
// double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/backends.h"
#include "kernels/ops.h"
#include "kernels/testing/random_blocks.h"

namespace winnow::kernels {
namespace {

using testing::RandomBlocks;
using testing::RandomFloats;

constexpr int64_t kMaxRows = 100, kMaxTokens = 64;

bool IsFloat(TensorType type) { return gguf::GetTypeInfo(type).block_elements == 1; }

// The input of a product with quantised weights: x rounded to 8 bits per block of 32.
std::vector<float> Quantized(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  for (size_t first = 0; first < x.size(); first += 32) {
    float largest = 0;
    for (size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    for (size_t i = first; i < first + 32; ++i) {
      out[i] = static_cast<float>(static_cast<double>(std::nearbyintf(x[i] * inverse)) *
                                  (largest / 127.0f));
    }
  }
  return out;
}

// From this many rows on, products of BF16 weights round the input where MultipliesBf16.
constexpr int64_t kManyRows = 12;

bool MultipliesBf16(const std::string& target) {
#if defined(__x86_64__)
  return target == "AVX3_DL" && __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

// The input of such a product.
std::vector<float> RoundedToBf16(const std::vector<float>& x) {
  std::vector<float> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = Bfloat16ToFloat(FloatToBfloat16(x[i]));
  return out;
}

// x [tokens, cols] times w [rows, cols]^T in double, and the same product of magnitudes, which
// bounds the rounding errors.
struct Product {
  std::vector<double> value, magnitude;
};
Product Multiply(const std::vector<float>& x, const std::vector<float>& w, int64_t cols) {
  const auto tokens = static_cast<int64_t>(x.size()) / cols,
             rows = static_cast<int64_t>(w.size()) / cols;
  Product p = {std::vector<double>(static_cast<size_t>(tokens * rows)),
               std::vector<double>(static_cast<size_t>(tokens * rows))};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; ++k) {
        const double term = static_cast<double>(x[static_cast<size_t>(t * cols + k)]) *
                            static_cast<double>(w[static_cast<size_t>(r * cols + k)]);
        p.value[static_cast<size_t>(t * rows + r)] += term;
        p.magnitude[static_cast<size_t>(t * rows + r)] += std::fabs(term);
      }
    }
  }
  return p;
}

Matrix Upload(Backend& backend, const std::vector<float>& values, int64_t rows, int64_t cols,
              std::vector<std::unique_ptr<Storage>>& storages) {
  storages.push_back(std::move(backend.Allocate(rows * cols * 4).value()));
  const Matrix m{storages.back().get(), 0, rows, cols, cols};
  backend.Write(m, values);
  return m;
}

class MatMulTest : public ::testing::TestWithParam<std::tuple<std::string, TensorType>> {
 protected:
  void AgreesWithLoopsInDouble(const CpuOptions& options);
};

// With the prefetch policy of every CPU family.
TEST_P(MatMulTest, AgreesWithLoopsInDouble) {
  ThreadPool pool(3);
  for (const char* family : {"intel", "amd", "zen5", "other"}) {
    SCOPED_TRACE(family);
    AgreesWithLoopsInDouble({.pool = &pool, .target = std::get<0>(GetParam()), .family = family});
  }
}

void MatMulTest::AgreesWithLoopsInDouble(const CpuOptions& options) {
  constexpr int64_t kLongRow = 4096;
  const TensorType type = std::get<1>(GetParam());
  auto backend = std::move(MakeCpuBackend(options).value());
  const int block = gguf::GetTypeInfo(type).block_elements;
  const std::vector<int64_t> all_cols = block == 1
                                            ? std::vector<int64_t>{1, 31, 100, 544, 1101, 4900}
                                        : block == 32 ? std::vector<int64_t>{32, 96, 1120}
                                                      : std::vector<int64_t>{256, 1280};
  for (const int64_t cols : all_cols) {
    Rng rng(static_cast<uint64_t>(cols));
    const std::vector<float> x = RandomFloats(kMaxTokens * cols, rng);
    const std::vector<std::byte> blocks = RandomBlocks(type, kMaxRows * cols, rng);
    std::vector<float> w(static_cast<size_t>(kMaxRows * cols));
    Dequantize(type, blocks, w);
    const Product exact = Multiply(x, w, cols);
    const bool multiplies_bf16 = type == TensorType::kBF16 && MultipliesBf16(options.target);
    const Product of_few = IsFloat(type) ? exact : Multiply(Quantized(x), w, cols);
    const Product of_many = multiplies_bf16 ? Multiply(RoundedToBf16(x), w, cols) : of_few;
    const std::vector<float> bias = RandomFloats(kMaxRows, rng);
    for (const int64_t rows : {1, 2, 7, 33, 100}) {
      auto weight =
          std::move(backend
                        ->LoadWeight({.name = "w",
                                      .type = type,
                                      .rows = rows,
                                      .cols = cols,
                                      .bytes = std::span(blocks).first(
                                          static_cast<size_t>(gguf::RowBytes(type, rows * cols))),
                                      .keep_alive = nullptr})
                        .value());
      for (const int64_t tokens : {1, 2, 3, 5, 8, 13, 14, 15, 23, 64}) {
        if (cols > kLongRow && tokens > 2) continue;  // more tokens would only take more time
        SCOPED_TRACE(std::to_string(cols) + " columns, " + std::to_string(rows) + " rows, " +
                     std::to_string(tokens) + " tokens");
        std::vector<std::unique_ptr<Storage>> storages;
        const Matrix mx =
            Upload(*backend, {x.begin(), x.begin() + tokens * cols}, tokens, cols, storages);
        const Matrix mbias =
            Upload(*backend, {bias.begin(), bias.begin() + rows}, 1, rows, storages);
        // Two extra columns, which the product must not change.
        const int64_t stride = rows + 2;
        const Matrix out =
            Upload(*backend, std::vector<float>(static_cast<size_t>(tokens * stride), 0.5f), tokens,
                   stride, storages);
        const Product& expected = tokens >= kManyRows ? of_many : of_few;
        const bool accumulate = tokens % 2 == 1, biased = rows % 2 == 1;
        const Linear job = {.weight = weight.get(),
                            .bias = biased ? mbias : Matrix{},
                            .out = out.Cols(0, rows),
                            .accumulate = accumulate};
        backend->MatMul(mx, {&job, 1});
        std::vector<float> found(static_cast<size_t>(tokens * stride));
        backend->Read(out, found);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t r = 0; r < rows; ++r) {
            const auto at = static_cast<size_t>(t * kMaxRows + r);
            const double added =
                (accumulate ? 0.5 : 0.0) + (biased ? bias[static_cast<size_t>(r)] : 0.0);
            const double value = found[static_cast<size_t>(t * stride + r)] - added;
            // Float sums are accurate to a few units in the last place of the intermediate
            // magnitudes. These exceed the terms' magnitudes because 8-bit products subtract their
            // offsets at the end.
            ASSERT_NEAR(value, expected.value[at], 2e-6 * expected.magnitude[at] + 4e-6)
                << "token " << t << " row " << r;
            ASSERT_NEAR(value, exact.value[at], 0.01 * exact.magnitude[at] + 1e-5)
                << "token " << t << " row " << r;
          }
          ASSERT_EQ(found[static_cast<size_t>(t * stride + rows)], 0.5f);
          ASSERT_EQ(found[static_cast<size_t>(t * stride + rows + 1)], 0.5f);
        }
      }
    }
  }
}

// The rows of x times a weight, [x row][weight row].
std::vector<float> RowsTimes(Backend& backend, const Weight& weight, std::span<const float> x) {
  const int64_t tokens = static_cast<int64_t>(x.size()) / weight.cols();
  std::vector<std::unique_ptr<Storage>> storages;
  const Matrix mx = Upload(backend, {x.begin(), x.end()}, tokens, weight.cols(), storages);
  std::vector<float> out(static_cast<size_t>(tokens * weight.rows()));
  const Matrix mout = Upload(backend, out, tokens, weight.rows(), storages);
  const Linear job = {.weight = &weight, .bias = {}, .out = mout, .accumulate = false};
  backend.MatMul(mx, {&job, 1});
  backend.Read(mout, out);
  return out;
}

// The same rows in calls of 1, 2, 3, 11, 16 and all rows.
TEST_P(MatMulTest, BatchInvariantRowsHaveTheSameBitsWithAnyOtherRows) {
  constexpr int64_t kRows = 33, kTokens = 37;
  const auto [target, type] = GetParam();
  ThreadPool pool(3);
  auto backend =
      std::move(
          MakeCpuBackend({.pool = &pool, .target = target, .family = {}, .batch_invariant = true}))
          .value();
  EXPECT_TRUE(backend->batch_invariant());
  for (const int64_t cols :
       IsFloat(type) ? std::vector<int64_t>{100, 4900} : std::vector<int64_t>{1280}) {
    Rng rng(static_cast<uint64_t>(cols));
    const std::vector<float> x = RandomFloats(kTokens * cols, rng);
    const std::vector<std::byte> blocks = RandomBlocks(type, kRows * cols, rng);
    const auto weight = std::move(backend->LoadWeight({.name = "w",
                                                       .type = type,
                                                       .rows = kRows,
                                                       .cols = cols,
                                                       .bytes = blocks,
                                                       .keep_alive = nullptr}))
                            .value();
    const std::vector<float> together = RowsTimes(*backend, *weight, x);
    for (const int64_t n : {1, 2, 3, 11, 16}) {
      std::vector<float> apart;
      for (int64_t token = 0; token < kTokens; token += n) {
        const auto count = static_cast<size_t>(std::min(n, kTokens - token) * cols);
        const std::vector<float> some = RowsTimes(
            *backend, *weight, std::span(x).subspan(static_cast<size_t>(token * cols), count));
        apart.insert(apart.end(), some.begin(), some.end());
      }
      EXPECT_EQ(apart, together) << cols << " columns, " << n << " rows at a time";
    }
  }
}

std::vector<std::tuple<std::string, TensorType>> AllCases() {
  std::vector<std::tuple<std::string, TensorType>> cases;
  for (const std::string& target : CpuTargets()) {
    for (const TensorType type : testing::kAllTypes) cases.emplace_back(target, type);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Targets, MatMulTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::string(gguf::GetTypeInfo(std::get<1>(test.param)).name);
                         });

// BF16 weights beside weights of another type in one call.
TEST(MatMulThreadsTest, Bf16WeightsBesideOthers) {
  constexpr int64_t kCols = 1120, kRows = 33;
  const std::string target = CpuTargets().front();
  ThreadPool pool(2);
  auto backend = std::move(MakeCpuBackend({.pool = &pool, .target = target}).value());
  // Quantised weights: many rows begin earlier. Other floats: no input is rounded to BF16.
  for (const auto& [other, tokens, rounds] : {std::tuple(TensorType::kQ8_0, int64_t{2}, false),
                                              {TensorType::kQ8_0, 5, true},
                                              {TensorType::kQ8_0, 40, true},
                                              {TensorType::kF16, 40, false}}) {
    Rng rng(9);
    const std::vector<float> x = RandomFloats(tokens * kCols, rng);
    std::vector<std::unique_ptr<Storage>> storages;
    const Matrix mx = Upload(*backend, x, tokens, kCols, storages);
    std::vector<std::vector<std::byte>> blocks;
    std::vector<std::unique_ptr<Weight>> weights;
    std::vector<Linear> jobs;
    for (const TensorType type : {TensorType::kBF16, other}) {
      blocks.push_back(RandomBlocks(type, kRows * kCols, rng));
      weights.push_back(std::move(backend
                                      ->LoadWeight({.name = "w",
                                                    .type = type,
                                                    .rows = kRows,
                                                    .cols = kCols,
                                                    .bytes = blocks.back(),
                                                    .keep_alive = nullptr})
                                      .value()));
      const std::vector<float> zeros(static_cast<size_t>(tokens * kRows));
      jobs.push_back({.weight = weights.back().get(),
                      .bias = {},
                      .out = Upload(*backend, zeros, tokens, kRows, storages),
                      .accumulate = false});
    }
    backend->MatMul(mx, jobs);
    for (size_t j = 0; j < jobs.size(); ++j) {
      const TensorType type = weights[j]->type();
      std::vector<float> w(static_cast<size_t>(kRows * kCols)), found(tokens * kRows);
      Dequantize(type, blocks[j], w);
      const bool rounded = type == TensorType::kBF16 && rounds && MultipliesBf16(target);
      const std::vector<float> input = rounded         ? RoundedToBf16(x)
                                       : IsFloat(type) ? x
                                                       : Quantized(x);
      const Product expected = Multiply(input, w, kCols);
      backend->Read(jobs[j].out, found);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected.value[i], 2e-6 * expected.magnitude[i] + 4e-6)
            << gguf::GetTypeInfo(type).name << " beside " << gguf::GetTypeInfo(other).name << ", "
            << tokens << " tokens, result " << i;
      }
    }
  }
}

// Jobs of several types and heights in one call, as a layer's q, k and v.
std::vector<float> FusedProduct(const CpuOptions& options, int64_t tokens, int64_t cols) {
  const struct {
    TensorType type;
    int64_t rows;
  } kJobs[] = {{TensorType::kQ4_K, 203},
               {TensorType::kQ6_K, 64},
               {TensorType::kF16, 64},
               {TensorType::kQ8_0, 1}};
  auto backend = std::move(MakeCpuBackend(options).value());
  Rng rng(7);
  std::vector<std::unique_ptr<Storage>> storages;
  const Matrix x = Upload(*backend, RandomFloats(tokens * cols, rng), tokens, cols, storages);
  const Matrix out = Upload(*backend, std::vector<float>(static_cast<size_t>(tokens * 332)), tokens,
                            332, storages);
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::unique_ptr<Weight>> weights;
  std::vector<Linear> jobs;
  int64_t first = 0;
  for (const auto& [type, rows] : kJobs) {
    blocks.push_back(RandomBlocks(type, rows * cols, rng));
    weights.push_back(std::move(backend
                                    ->LoadWeight({.name = "w",
                                                  .type = type,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .bytes = blocks.back(),
                                                  .keep_alive = nullptr})
                                    .value()));
    jobs.push_back({.weight = weights.back().get(),
                    .bias = {},
                    .out = out.Cols(first, rows),
                    .accumulate = false});
    first += rows;
  }
  backend->MatMul(x, jobs);
  std::vector<float> found(static_cast<size_t>(tokens * 332));
  backend->Read(out, found);
  for (const Linear& job : jobs) {  // each job alone must give the same result
    std::vector<float> fused(static_cast<size_t>(job.out.rows * job.out.cols)), alone(fused.size());
    backend->Read(job.out, fused);
    backend->MatMul(x, {&job, 1});
    backend->Read(job.out, alone);
    EXPECT_EQ(fused, alone);
  }
  return found;
}

// With the second number of columns, a thread takes several rows at once.
TEST(MatMulThreadsTest, ResultsAreTheSameForAnyNumber) {
  const auto product = [](int n_threads, const char* family, int64_t tokens, int64_t cols) {
    ThreadPool pool(n_threads);
    return FusedProduct({.pool = &pool, .target = "", .family = family}, tokens, cols);
  };
  for (const int64_t cols : {512, 3328}) {
    for (const char* family : {"intel", "amd", "zen5"}) {
      for (const int64_t tokens : {1, 3, 40, 200}) {
        const std::vector<float> one = product(1, family, tokens, cols);
        for (const int n_threads : {2, 3, 7}) {
          EXPECT_EQ(one, product(n_threads, family, tokens, cols))
              << family << ", " << tokens << " tokens, " << cols << " columns";
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::kernels
