#include "compression/methods/winnow_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace winnow::compression::methods {
namespace {

using Sizes = std::vector<int64_t>;

TEST(CurveSizes, OneToEightThenThirdsOfADoubling) {
  EXPECT_EQ(CurveSizes(0), Sizes{});
  EXPECT_EQ(CurveSizes(3), (Sizes{1, 2, 3}));
  EXPECT_EQ(CurveSizes(8), (Sizes{1, 2, 3, 4, 5, 6, 7, 8}));
  // 8 * 2^(1/3) = 10.08, 12.7, 16, 20.2
  EXPECT_EQ(CurveSizes(20), (Sizes{1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20}));
}

// Two entries of one dimension, values 1 and 5, equal keys: a row gives both half, output 3.
class OneRow : public testing::Test {
 protected:
  OneRow() {
    entries_.n = 2;
    entries_.key_dim = entries_.value_dim = 1;
    entries_.keys = {0, 0};
    entries_.values = {1, 5};
    entries_.biases = {0, 0};
    rows_.group = rows_.key_dim = rows_.value_dim = 1;
    rows_.scale = 1;
  }

  HeadEntriesOnHost entries_;
  ReferenceRows rows_;
  std::vector<std::vector<float>> identity_ = {{1}};
};

TEST_F(OneRow, ErrorIsTheSquaredDifferenceOverTheSquaredNorm) {
  const std::vector<float> query = {1};
  AddRow(rows_, query, /*norm=*/2, /*n_visible=*/2, /*first_own=*/2, entries_);
  const std::vector<int32_t> order = {1, 0};
  const ErrorCurve curve = MakeErrorCurve(rows_, entries_, order, std::vector<bool>(2), identity_);
  EXPECT_EQ(curve.sizes, (Sizes{1, 2}));
  // Entry 1 alone gives 5: (3 - 5)^2 / 2^2.
  EXPECT_NEAR(curve.errors[0], 1, 1e-6);
  EXPECT_NEAR(curve.errors[1], 0, 1e-12);
}

TEST_F(OneRow, TheOutputProjectionWeighsTheDifference) {
  const std::vector<float> query = {1};
  AddRow(rows_, query, 1, 2, 2, entries_);
  const std::vector<std::vector<float>> gram = {{9}};
  const ErrorCurve curve =
      MakeErrorCurve(rows_, entries_, std::vector<int32_t>{1, 0}, std::vector<bool>(2), gram);
  EXPECT_NEAR(curve.errors[0], 4 * 9, 1e-5);
}

TEST_F(OneRow, WhatTheRowGivesToItsOwnEntriesStays) {
  // A third entry, the row's own, of value 6 and the same key: the output is (1 + 5 + 6) / 3 = 4.
  HeadEntriesOnHost all = entries_;
  all.n = 3;
  all.keys = {0, 0, 0};
  all.values = {1, 5, 6};
  all.biases = {0, 0, 0};
  const std::vector<float> query = {1};
  AddRow(rows_, query, 1, 3, 2, all);
  EXPECT_FLOAT_EQ(rows_.own_sum[0], 1);
  EXPECT_FLOAT_EQ(rows_.own_output[0], 6);
  const ErrorCurve curve =
      MakeErrorCurve(rows_, entries_, std::vector<int32_t>{0, 1}, std::vector<bool>(2), identity_);
  // (1 + 6) / 2 = 3.5
  EXPECT_NEAR(curve.errors[0], 0.25, 1e-6);
  EXPECT_NEAR(curve.errors[1], 0, 1e-12);
  const Targets targets = MakeTargets(rows_, entries_);
  EXPECT_FLOAT_EQ(targets.outputs[0], 4);
  EXPECT_FLOAT_EQ(targets.masses[0], 3);
  EXPECT_NEAR(targets.weights[0], 1.0 / 3, 1e-7);
}

TEST_F(OneRow, BiasesCountLikeSeveralEntries) {
  entries_.biases = {std::log(3.0f), 0};
  const std::vector<float> query = {1};
  AddRow(rows_, query, 1, 2, 2, entries_);
  const Targets targets = MakeTargets(rows_, entries_);
  EXPECT_NEAR(targets.outputs[0], (3 * 1 + 5) / 4.0, 1e-6);
  EXPECT_NEAR(targets.weights[0], 0.75, 1e-6);
}

ErrorCurve Curve(Sizes sizes, std::vector<double> errors) {
  return {.sizes = std::move(sizes), .errors = std::move(errors)};
}

TEST(FillCurves, SteepestFirst) {
  const std::vector<ErrorCurve> curves = {
      Curve({1, 2, 3, 4}, {10, 4, 1, 0}),   // gains 6, 3, 1
      Curve({1, 2, 3, 4}, {10, 5, 3, 0})};  // 5, then convex: 2.5, 2.5
  EXPECT_EQ(FillCurves(curves, 1, 2), (Sizes{1, 1}));
  EXPECT_EQ(FillCurves(curves, 1, 3), (Sizes{2, 1}));
  EXPECT_EQ(FillCurves(curves, 1, 4), (Sizes{2, 2}));
  EXPECT_EQ(FillCurves(curves, 1, 5), (Sizes{3, 2}));
  EXPECT_EQ(FillCurves(curves, 1, 6), (Sizes{3, 3}));
  EXPECT_EQ(FillCurves(curves, 1, 7), (Sizes{3, 4}));
  EXPECT_EQ(FillCurves(curves, 1, 100), (Sizes{4, 4}));
}

TEST(FillCurves, NothingIsLeftUnusedWhereNothingGains) {
  const std::vector<ErrorCurve> curves = {Curve({1, 2, 3}, {0, 0, 0}), Curve({1, 2}, {0, 0})};
  EXPECT_EQ(FillCurves(curves, 1, 4), (Sizes{3, 1}));
}

TEST(FillCurves, FloorsAreKeptAndHeadsWithoutEntriesTakeNone) {
  const std::vector<ErrorCurve> curves = {Curve({1, 2, 3, 4}, {9, 9, 9, 9}), Curve({}, {}),
                                          Curve({1, 2, 3, 4}, {100, 60, 30, 0})};
  EXPECT_EQ(FillCurves(curves, 2, 5), (Sizes{2, 0, 3}));
}

TEST(FillCurves, NumbersOfABrokenModelStillFill) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<ErrorCurve> curves = {Curve({1, 2, 3}, {nan, nan, nan}),
                                          Curve({1, 2, 3}, {INFINITY, 1, 0})};
  const Sizes sizes = FillCurves(curves, 1, 4);
  EXPECT_EQ(sizes[0] + sizes[1], 4);
}

}  // namespace
}  // namespace winnow::compression::methods
