#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/ops.h"
#include "kernels/testing/random_blocks.h"

namespace winnow::kernels {
namespace {

// One block of each type with byte i = 37 i + 11 (mod 256), except its halves: the first is 0.25,
// the second -0.125. Expected values come from PyPI gguf 0.19 (gguf.quants.dequantize): some
// elements, and the sum of (i + 1) * element i.
struct BlockCase {
  TensorType type;
  std::vector<size_t> halves;
  double elements[5];  // elements 0, 1, n / 2 - 1, n / 2 and n - 1
  double weighted_sum;
};
const BlockCase kBlockCases[] = {
    {TensorType::kQ4_0, {0}, {-0.75, 0.5, -2.0, -0.75, 0.0}, -129.5},
    {TensorType::kQ4_1, {0, 2}, {3.625, 0.875, 2.375, 2.125, 2.875}, 929.75},
    {TensorType::kQ5_0, {0}, {2.25, -0.5, -3.0, 3.5, 0.25}, 28.0},
    {TensorType::kQ5_1, {0, 2}, {4.625, 5.875, 7.375, 4.625, 1.125}, 1909.25},
    {TensorType::kQ8_0, {0}, {21.25, 30.5, -32.0, -22.75, -12.0}, -2020.0},
    {TensorType::kQ2_K, {80, 82}, {8.25, 0.0, 10.5, 2.625, 1.875}, 118624.5},
    {TensorType::kQ3_K, {108}, {20.25, -27.0, 18.0, 0.5, 10.5}, 44286.25},
    {TensorType::kQ4_K, {0, 2}, {91.625, 6.375, 28.75, 108.75, 20.875}, 2131066.0},
    {TensorType::kQ5_K, {0, 2}, {215.625, 6.375, 7.75, 264.75, 35.875}, 4244718.0},
    {TensorType::kQ6_K, {208}, {-357.75, 424.0, 375.0, -87.75, -15.0}, 196105.0},
    {TensorType::kIQ4_NL, {0}, {-8.75, 6.25, -31.75, -8.75, 0.25}, -1729.75},
    {TensorType::kIQ4_XS, {0}, {16.25, -0.25, 49.0, -146.25, -4.0}, -522783.5},
};

TEST(DequantizeTest, BlocksHaveTheExpectedValues) {
  for (const BlockCase& c : kBlockCases) {
    const gguf::TypeInfo& info = gguf::GetTypeInfo(c.type);
    SCOPED_TRACE(info.name);
    std::vector<std::byte> block(static_cast<size_t>(info.block_bytes));
    for (size_t i = 0; i < block.size(); ++i)
      block[i] = static_cast<std::byte>((37 * i + 11) & 0xFF);
    for (size_t i = 0; i < c.halves.size(); ++i) {
      const uint16_t half = FloatToHalf(i == 0 ? 0.25f : -0.125f);
      std::memcpy(&block[c.halves[i]], &half, sizeof(half));
    }
    std::vector<float> values(static_cast<size_t>(info.block_elements));
    Dequantize(c.type, block, values);
    const size_t n = values.size();
    const size_t at[5] = {0, 1, n / 2 - 1, n / 2, n - 1};
    for (int i = 0; i < 5; ++i) EXPECT_EQ(values[at[i]], c.elements[i]) << "element " << at[i];
    double sum = 0;
    for (size_t i = 0; i < n; ++i)
      sum += static_cast<double>(i + 1) * static_cast<double>(values[i]);
    EXPECT_EQ(sum, c.weighted_sum);
  }
}

// 32 values, -5.71875 to 5.90625. The expected blocks below come from PyPI gguf.
std::vector<float> SomeValues() {
  std::vector<float> values;
  for (int i = 0; i < 32; ++i) values.push_back((static_cast<float>(7 * i % 32) - 15.25f) * 0.375f);
  return values;
}
std::vector<int> QuantizedBytes(TensorType type, const std::vector<float>& values) {
  std::vector<std::byte> blocks(
      static_cast<size_t>(gguf::RowBytes(type, static_cast<int64_t>(values.size()))));
  Quantize(type, values, blocks);
  std::vector<int> bytes;
  for (const std::byte byte : blocks) bytes.push_back(static_cast<int>(byte));
  return bytes;
}

TEST(QuantizeTest, Q8_0HasTheExpectedBytes) {
  const std::vector<int> expected = {244, 41,  133, 189, 246, 46,  103, 157, 214, 14,  71,  127,
                                     181, 238, 38,  95,  149, 206, 6,   62,  119, 173, 230, 30,
                                     87,  141, 198, 254, 54,  111, 165, 222, 22,  79};
  EXPECT_EQ(QuantizedBytes(TensorType::kQ8_0, SomeValues()), expected);
}

TEST(QuantizeTest, Q4_0HasTheExpectedBytes) {
  const std::vector<int> expected = {232, 185, 143, 76, 25, 213, 162, 110, 59,
                                     247, 196, 128, 93, 25, 230, 162, 127, 59};
  EXPECT_EQ(QuantizedBytes(TensorType::kQ4_0, SomeValues()), expected);
}

TEST(QuantizeTest, ZerosStayZeros) {
  for (const TensorType type : testing::kAllTypes) {
    if (!IsCacheType(type)) continue;
    std::vector<std::byte> blocks(static_cast<size_t>(gguf::RowBytes(type, 64)));
    Quantize(type, std::vector<float>(64), blocks);
    std::vector<float> values(64, 1.0f);
    Dequantize(type, blocks, values);
    EXPECT_EQ(values, std::vector<float>(64)) << gguf::GetTypeInfo(type).name;
  }
}

TEST(QuantizeTest, ErrorIsAtMostHalfAStep) {
  Rng rng(5);
  const std::vector<float> values = testing::RandomFloats(1024, rng);
  const struct {
    TensorType type;
    double largest;
  } kLimits[] = {{TensorType::kF32, 0},
                 {TensorType::kF16, 0.5 / 2048},
                 {TensorType::kBF16, 0.5 / 256},
                 {TensorType::kQ8_0, 0.5 / 127 * 1.01},  // the scale itself is a half
                 {TensorType::kQ4_0, 1.0 / 8 * 1.01}};  // the range ends a step earlier on one side
  for (const auto& [type, largest] : kLimits) {
    std::vector<std::byte> blocks(static_cast<size_t>(gguf::RowBytes(type, 1024)));
    Quantize(type, values, blocks);
    std::vector<float> back(1024);
    Dequantize(type, blocks, back);
    for (size_t i = 0; i < back.size(); ++i) {
      ASSERT_NEAR(back[i], values[i], largest) << gguf::GetTypeInfo(type).name << " element " << i;
    }
  }
}

}  // namespace
}  // namespace winnow::kernels
