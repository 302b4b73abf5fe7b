#include "compression/taps.h"

#include <gtest/gtest.h>

namespace winnow::compression {
namespace {

using kernels::Taps;
using kernels::TapSpec;
using Reduce = TapSpec::Reduce;

TEST(TapsTest, JoinsWhatOnePassCanServe) {
  const TapSpec rows = {.last_rows = 8};
  const TapSpec sums = {.last_rows = 2, .column_sums = true};
  EXPECT_EQ(Join(rows, sums), (TapSpec{.last_rows = 8, .column_sums = true}));
  EXPECT_EQ(Join({}, sums), sums);
  EXPECT_EQ(Join(sums, {.reduce = Reduce::kNone}), sums);
  const TapSpec heads = {.last_rows = 1, .reduce = Reduce::kNone};
  EXPECT_EQ(Join(rows, heads), (TapSpec{.last_rows = 8, .reduce = Reduce::kNone}));

  EXPECT_TRUE(CanServe(sums, heads));
  EXPECT_TRUE(CanServe(rows, {.last_rows = 1, .reduce = Reduce::kMax}));
  EXPECT_FALSE(CanServe({.square_sums = true}, heads));
  EXPECT_FALSE(CanServe({.column_sums = true, .reduce = Reduce::kMax}, heads));
  EXPECT_TRUE(CanServe({.square_sums = true}, rows));
}

TEST(TapsTest, SumsOverTheLastQueriesAreOfOneNumberOfThem) {
  const TapSpec ten = {.last_sums = 10, .reduce = Reduce::kNone};
  EXPECT_EQ(Join({.column_sums = true}, ten),
            (TapSpec{.last_sums = 10, .column_sums = true, .reduce = Reduce::kNone}));
  EXPECT_TRUE(CanServe(ten, {.last_sums = 10}));
  EXPECT_FALSE(CanServe(ten, {.last_sums = 9}));
  EXPECT_FALSE(CanServe(ten, {.last_sums = 10, .reduce = Reduce::kMax}));
  Taps found, reduced;
  found.n_last_sums = 7;
  found.last_sums = {{1, 2}, {3, 6}};
  const Taps& mean = ReduceTapsTo({.last_sums = 10}, ten, found, 2, reduced);
  EXPECT_EQ(mean.n_last_sums, 7);
  EXPECT_EQ(mean.last_sums, (std::vector<std::vector<double>>{{2, 4}}));
}

TEST(TapsTest, AShareOfTheTokensIsSettledByTheCall) {
  const Needs needs = {.prefill = {.last_sums = 1}, .last_sums_share = 0.1};
  EXPECT_EQ(TapsOfCall(needs, Phase::kPrefill, 5120).last_sums, 512);
  EXPECT_EQ(TapsOfCall(needs, Phase::kPrefill, 20000).last_sums, 2000);
  EXPECT_EQ(TapsOfCall(needs, Phase::kPrefill, 3).last_sums, 1);
  EXPECT_EQ(TapsOfCall(needs, Phase::kDecode, 5120), TapSpec{});
}

TEST(TapsTest, ReducesOverTheGroups) {
  const TapSpec joined = {.last_rows = 2, .column_sums = true, .reduce = Reduce::kNone};
  Taps found;
  found.n_last_rows = 2;
  found.last_rows = {{1, 2, 3, 4}, {3, 0, 5, 8}, {1, 1, 1, 1}, {0, 2, 0, 4}};
  found.column_sums = {{1, 2}, {3, 6}, {5, 5}, {7, 9}};
  Taps reduced;
  EXPECT_EQ(&ReduceTapsTo(joined, joined, found, 2, reduced), &found);
  EXPECT_EQ(&ReduceTapsTo({}, joined, found, 2, reduced), &found);

  const Taps& mean = ReduceTapsTo({.last_rows = 1}, joined, found, 2, reduced);
  EXPECT_EQ(mean.n_last_rows, 2);
  EXPECT_EQ(mean.last_rows, (std::vector<std::vector<float>>{{2, 1, 4, 6}, {.5, 1.5, .5, 2.5}}));
  EXPECT_EQ(mean.column_sums, (std::vector<std::vector<double>>{{2, 4}, {6, 7}}));
  const Taps& max =
      ReduceTapsTo({.last_rows = 1, .reduce = Reduce::kMax}, joined, found, 2, reduced);
  EXPECT_EQ(max.last_rows, (std::vector<std::vector<float>>{{3, 2, 5, 8}, {1, 2, 1, 4}}));
  const Taps& sum =
      ReduceTapsTo({.column_sums = true, .reduce = Reduce::kSum}, joined, found, 2, reduced);
  EXPECT_EQ(sum.column_sums, (std::vector<std::vector<double>>{{4, 8}, {12, 14}}));
}

}  // namespace
}  // namespace winnow::compression
