#include "base/half.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace winnow {
namespace {

TEST(Half, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_EQ(half & 0x7C00, 0x7C00);
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << bits;
    }
  }
}

TEST(Half, KnownValuesAndRounding) {
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1.0p-24f);
  EXPECT_EQ(HalfToFloat(0xFBFF), -65504.0f);
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(1.0f + 0x1.0p-11f), 0x3C00);  // tie to even
  EXPECT_EQ(FloatToHalf(1.0f + 0x1.8p-10f), 0x3C02);  // tie to even, upwards
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(Bfloat16ToFloat(FloatToBfloat16(1.0f)), 1.0f);
  EXPECT_EQ(FloatToBfloat16(1.0f + 0x1.0p-8f), 0x3F80);
  EXPECT_EQ(FloatToBfloat16(1.0f + 0x1.8p-7f), 0x3F82);
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace winnow
