#include "report/page/axis.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::report {
namespace {

std::vector<std::string> LabelTexts(const std::vector<Tick>& ticks) {
  std::vector<std::string> labels;
  for (const Tick& tick : ticks) labels.push_back(tick.label);
  return labels;
}

using Labels = std::vector<std::string>;

TEST(Axis, LinearTicksAreRound) {
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLinear, {0, 100}, 5)),
            (Labels{"0", "20", "40", "60", "80", "100"}));
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLinear, {-0.3, 0.2}, 5)),
            (Labels{"-0.3", "-0.2", "-0.1", "0", "0.1", "0.2"}));
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLinear, {6, 0}, 3)),
            (Labels{"0", "2", "4", "6"}));  // downwards
  EXPECT_TRUE(MakeTicks(Scale::kLinear, {5, 5}, 3).empty());
}

TEST(Axis, ThingsThatAreCountedHaveNoFractions) {
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLinear, {0, 3}, 8, /*whole=*/true)),
            (Labels{"0", "1", "2", "3"}));
}

TEST(Axis, LogarithmicTicksArePowers) {
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLog10, {1, 10000}, 8)),
            (Labels{"1", "10", "100", "1000", "10000"}));
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLog10, {1e-5, 1e5}, 4)),
            (Labels{"1e-5", "0.01", "10", "10000"}));
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLog2, {200, 4096}, 8)),
            (Labels{"256", "512", "1024", "2048", "4096"}));
}

TEST(Axis, LogarithmicTicksOfADecadeOrLessAreMore) {
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLog10, {1, 30}, 5)), (Labels{"1", "2", "5", "10", "20"}));
  EXPECT_EQ(LabelTexts(MakeTicks(Scale::kLog10, {2.1, 2.9}, 4)),
            (Labels{"2.2", "2.4", "2.6", "2.8"}));
}

TEST(Axis, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(NumberLabel(0), "0");
  EXPECT_EQ(NumberLabel(0.25), "0.25");
  EXPECT_EQ(NumberLabel(1.0 / 3), "0.3333");
  EXPECT_EQ(NumberLabel(65536), "65536");
  EXPECT_EQ(NumberLabel(150000), "150k");
  EXPECT_EQ(NumberLabel(10e6), "10M");
  EXPECT_EQ(NumberLabel(1e-5), "1e-5");
  EXPECT_EQ(NumberLabel(-1.5e12), "-1500G");
}

TEST(Axis, RangesHoldWhatIsMeasured) {
  EXPECT_EQ(AxisRange({}, std::vector<double>{3, NAN, 97}), (Range{0, 100}));
  EXPECT_EQ(AxisRange({}, std::vector<double>{41, 43}), (Range{41, 43}));
  EXPECT_EQ(AxisRange({}, std::vector<double>{41, 43}, /*with_zero=*/true), (Range{0, 50}));
  EXPECT_EQ(AxisRange({}, std::vector<double>{}), (Range{0, 1}));
  EXPECT_EQ(AxisRange({}, std::vector<double>{5, 5, INFINITY}), (Range{2, 8}));
  const Axis log = {.label = "", .scale = Scale::kLog10, .from = {}, .to = {}};
  EXPECT_EQ(AxisRange(log, std::vector<double>{-1, 0, 8, 200}), (Range{8, 200}));
  const Axis fixed = {.label = "", .from = 0, .to = 1};
  EXPECT_EQ(AxisRange(fixed, std::vector<double>{0.4, 0.6}), (Range{0, 1}));
}

TEST(Axis, MapsValuesToPixels) {
  const AxisMap linear = {Scale::kLinear, {0, 10}, 100, 200};
  EXPECT_DOUBLE_EQ(linear.At(2.5), 125);
  const AxisMap upwards = {Scale::kLog10, {1, 100}, 200, 0};
  EXPECT_DOUBLE_EQ(upwards.At(10), 100);
  EXPECT_FALSE(upwards.Shows(0));
  EXPECT_FALSE(linear.Shows(NAN));
  EXPECT_TRUE(linear.Shows(0));
}

}  // namespace
}  // namespace winnow::report
