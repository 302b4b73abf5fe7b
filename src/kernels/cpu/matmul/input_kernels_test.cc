#include "kernels/cpu/matmul/input_kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace winnow::kernels::cpu {
namespace {

// Rows of floats that 8 bits cannot represent: infinities, NaN, and values so small that 127 /
// value overflows.
std::vector<float> Garbage(int64_t rows, int64_t cols) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float odd[] = {
      kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e-40f, -1e-40f, 3e38f, 0, 1};
  Rng rng(5);
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& value : x) value = odd[rng.Next() % std::size(odd)];
  // In the first row, blocks of a single kind.
  for (int64_t i = 0; i < cols; ++i) x[static_cast<size_t>(i)] = odd[i / 32 % std::ssize(odd)];
  return x;
}

// Sums must be exact whatever the input holds: products multiply them by up to 128 and add them.
TEST(QuantizeInputTest, SumsAreThoseOfTheRoundedValues) {
  constexpr int64_t kRows = 5, kCols = 512;
  const std::vector<float> x = Garbage(kRows, kCols);
  std::vector<std::byte> memory(static_cast<size_t>(QuantizedInputBytes(kRows, kCols)) + 64);
  void* aligned = memory.data();
  size_t space = memory.size();
  ASSERT_NE(std::align(64, static_cast<size_t>(QuantizedInputBytes(kRows, kCols)), aligned, space),
            nullptr);
  ThreadPool pool(1);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const QuantizedInput quantized = QuantizeInput(x.data(), kRows, kCols, kCols, target,
                                                   static_cast<std::byte*>(aligned), pool);
    for (int64_t half = 0; half < kRows * kCols / 16; ++half) {
      int32_t sum = 0;
      for (int i = 0; i < 16; ++i) {
        EXPECT_GT(quantized.q[half * 16 + i], -128);
        sum += quantized.q[half * 16 + i];
      }
      EXPECT_EQ(quantized.sums[half], sum) << hwy::TargetName(target) << " half block " << half;
    }
  }
}

}  // namespace
}  // namespace winnow::kernels::cpu
