#include "attention/tap_collector.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace winnow::attention {
namespace {

using kernels::Taps;
using kernels::TapSpec;

TEST(TapCollector, AsksEachBlockForItsShareOfTheLastRows) {
  const TapCollector taps({.last_rows = 3}, 10);
  EXPECT_EQ(taps.first_query(), 7);
  EXPECT_FALSE(taps.SpecOf(0, 4).any());
  EXPECT_EQ(taps.SpecOf(4, 8).last_rows, 1);
  EXPECT_EQ(taps.SpecOf(7, 8).last_rows, 1);
  EXPECT_EQ(taps.SpecOf(8, 10).last_rows, 2);
}

TEST(TapCollector, AsksForNoMoreRowsThanThereAre) {
  const TapCollector taps({.last_rows = 32}, 5);
  EXPECT_EQ(taps.first_query(), 0);
  EXPECT_EQ(taps.SpecOf(0, 4).last_rows, 4);
  EXPECT_EQ(taps.SpecOf(4, 5).last_rows, 1);
}

TEST(TapCollector, ColumnSumsNeedEveryQuery) {
  const TapCollector taps({.last_rows = 1, .column_sums = true}, 10);
  EXPECT_EQ(taps.first_query(), 0);
  EXPECT_TRUE(taps.SpecOf(0, 4).column_sums);
}

TEST(TapCollector, NothingAskedNeedsNoQuery) { EXPECT_EQ(TapCollector({}, 10).first_query(), 10); }

TEST(TapCollector, JoinsBlocks) {
  // Two KV heads; blocks of 2 and 1 queries over 2 and then 3 slots.
  TapCollector taps({.last_rows = 2, .column_sums = true}, 3);
  taps.Add({.last_rows = {{0.5f, 0.5f}, {0.25f, 0.75f}},
            .n_last_rows = 1,
            .column_sums = {{1.5, 0.5}, {1.25, 0.75}}});
  taps.Add({.last_rows = {{0.1f, 0.2f, 0.7f}, {0.3f, 0.3f, 0.4f}},
            .n_last_rows = 1,
            .column_sums = {{0.1, 0.2, 0.7}, {0.3, 0.3, 0.4}}});
  const Taps all = taps.Take();
  EXPECT_EQ(all.n_last_rows, 2);
  EXPECT_EQ(all.last_rows,
            (std::vector<std::vector<float>>{{0.5f, 0.5f, 0.0f, 0.1f, 0.2f, 0.7f},
                                             {0.25f, 0.75f, 0.0f, 0.3f, 0.3f, 0.4f}}));
  ASSERT_EQ(all.column_sums.size(), 2u);
  EXPECT_DOUBLE_EQ(all.column_sums[0][0], 1.6);
  EXPECT_DOUBLE_EQ(all.column_sums[0][2], 0.7);
  EXPECT_DOUBLE_EQ(all.column_sums[1][1], 1.05);

  // The next layer starts from nothing.
  EXPECT_EQ(taps.Take().n_last_rows, 0);
}

}  // namespace
}  // namespace winnow::attention
