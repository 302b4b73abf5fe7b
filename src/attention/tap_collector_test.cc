#include "attention/tap_collector.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::attention {
namespace {

using kernels::Taps;
using kernels::TapSpec;

TapCollector Started(const TapSpec& spec, int64_t n_queries) {
  TapCollector taps;
  taps.Start(spec, n_queries);
  return taps;
}

void Add(TapCollector& taps, const Taps& block) {
  taps.block() = block;
  taps.Add();
}

TEST(TapCollector, AsksEachBlockForItsShareOfTheLastRows) {
  const TapCollector taps = Started({.last_rows = 3}, 10);
  EXPECT_EQ(taps.first_query(), 7);
  EXPECT_FALSE(taps.SpanTaps(0, 4).any());
  EXPECT_EQ(taps.SpanTaps(4, 8).last_rows, 1);
  EXPECT_EQ(taps.SpanTaps(7, 8).last_rows, 1);
  EXPECT_EQ(taps.SpanTaps(8, 10).last_rows, 2);
}

TEST(TapCollector, AsksForNoMoreRowsThanThereAre) {
  const TapCollector taps = Started({.last_rows = 32}, 5);
  EXPECT_EQ(taps.first_query(), 0);
  EXPECT_EQ(taps.SpanTaps(0, 4).last_rows, 4);
  EXPECT_EQ(taps.SpanTaps(4, 5).last_rows, 1);
}

TEST(TapCollector, SumsNeedEveryQuery) {
  const TapCollector columns = Started({.last_rows = 1, .column_sums = true}, 10);
  EXPECT_EQ(columns.first_query(), 0);
  EXPECT_TRUE(columns.SpanTaps(0, 4).column_sums);
  const TapCollector squares = Started({.last_rows = 1, .square_sums = true}, 10);
  EXPECT_EQ(squares.first_query(), 0);
  EXPECT_TRUE(squares.SpanTaps(0, 4).square_sums);
}

TEST(TapCollector, AsksEachBlockForItsShareOfTheLastSums) {
  TapCollector taps = Started({.last_rows = 1, .last_sums = 3}, 6);
  EXPECT_EQ(taps.first_query(), 3);
  EXPECT_EQ(taps.SpanTaps(0, 2).last_sums, 0);
  EXPECT_EQ(taps.SpanTaps(2, 4).last_sums, 1);
  EXPECT_EQ(taps.SpanTaps(4, 6).last_sums, 2);
  Add(taps, {.last_rows = {},
             .n_last_sums = 1,
             .last_sums = {{0.5, 0.5}},
             .column_sums = {},
             .square_sums = {}});
  Add(taps, {.last_rows = {{0.25f, 0.25f, 0.5f}},
             .n_last_rows = 1,
             .n_last_sums = 2,
             .last_sums = {{0.75, 0.25, 0.5}},
             .column_sums = {},
             .square_sums = {}});
  EXPECT_EQ(taps.all().n_last_sums, 3);
  EXPECT_EQ(taps.all().last_sums, (std::vector<std::vector<double>>{{1.25, 0.75, 0.5}}));
}

// The first blocks have sums over all queries only; a later one also has last sums.
TEST(TapCollector, LastSumsThatBeginLate) {
  TapCollector taps = Started({.last_sums = 1, .column_sums = true}, 3);
  Add(taps, {.last_rows = {}, .last_sums = {}, .column_sums = {{2, 0}}, .square_sums = {}});
  Add(taps, {.last_rows = {},
             .n_last_sums = 1,
             .last_sums = {{0.5, 0.5}},
             .column_sums = {{0.5, 0.5}},
             .square_sums = {}});
  EXPECT_EQ(taps.all().last_sums, (std::vector<std::vector<double>>{{0.5, 0.5}}));
  EXPECT_EQ(taps.all().column_sums, (std::vector<std::vector<double>>{{2.5, 0.5}}));
}

TEST(TapCollector, NothingAskedNeedsNoQuery) { EXPECT_EQ(Started({}, 10).first_query(), 10); }

TEST(TapCollector, OneBlockIsNotCopied) {
  TapCollector taps = Started({.last_rows = 1}, 1);
  taps.block() = {.last_rows = {{0.5f, 0.5f}},
                  .n_last_rows = 1,
                  .last_sums = {},
                  .column_sums = {},
                  .square_sums = {}};
  const float* row = taps.block().last_rows[0].data();
  taps.Add();
  EXPECT_EQ(taps.all().last_rows[0].data(), row);
  // The next layer writes to the same memory.
  taps.Start({.last_rows = 1}, 1);
  EXPECT_EQ(taps.block().last_rows[0].data(), row);
}

TEST(TapCollector, JoinsBlocks) {
  // Two lists; blocks of 2, 1 and 1 queries over 2, 3 and 3 entries.
  TapCollector taps = Started({.last_rows = 3, .column_sums = true, .square_sums = true}, 4);
  Add(taps, {.last_rows = {{0.5f, 0.5f}, {0.25f, 0.75f}},
             .n_last_rows = 1,
             .last_sums = {},
             .column_sums = {{1.5, 0.5}, {1.25, 0.75}},
             .square_sums = {{1.25, 0.25}, {1.0625, 0.5625}}});
  Add(taps, {.last_rows = {{0.1f, 0.2f, 0.7f}, {0.3f, 0.3f, 0.4f}},
             .n_last_rows = 1,
             .last_sums = {},
             .column_sums = {{0.1, 0.2, 0.7}, {0.3, 0.3, 0.4}},
             .square_sums = {{0.01, 0.04, 0.49}, {0.09, 0.09, 0.16}}});
  Add(taps, {.last_rows = {{1, 0, 0}, {0, 1, 0}},
             .n_last_rows = 1,
             .last_sums = {},
             .column_sums = {{1, 0, 0}, {0, 1, 0}},
             .square_sums = {{1, 0, 0}, {0, 1, 0}}});
  const Taps& all = taps.all();
  EXPECT_EQ(all.n_last_rows, 3);
  EXPECT_EQ(all.last_rows,
            (std::vector<std::vector<float>>{{0.5f, 0.5f, 0.0f, 0.1f, 0.2f, 0.7f, 1, 0, 0},
                                             {0.25f, 0.75f, 0.0f, 0.3f, 0.3f, 0.4f, 0, 1, 0}}));
  ASSERT_EQ(all.column_sums.size(), 2u);
  EXPECT_DOUBLE_EQ(all.column_sums[0][0], 2.6);
  EXPECT_DOUBLE_EQ(all.column_sums[0][2], 0.7);
  EXPECT_DOUBLE_EQ(all.column_sums[1][1], 2.05);
  ASSERT_EQ(all.square_sums.size(), 2u);
  EXPECT_DOUBLE_EQ(all.square_sums[0][0], 2.26);
  EXPECT_DOUBLE_EQ(all.square_sums[1][2], 0.16);

  // The next layer starts empty.
  taps.Start({.last_rows = 3}, 4);
  EXPECT_EQ(taps.all().n_last_rows, 0);
}

// The first blocks have sums only; a later one also has rows.
TEST(TapCollector, RowsThatBeginLate) {
  TapCollector taps = Started({.last_rows = 1, .column_sums = true}, 3);
  Add(taps, {.last_rows = {},
             .n_last_rows = 0,
             .last_sums = {},
             .column_sums = {{2, 0}},
             .square_sums = {}});
  Add(taps, {.last_rows = {{0.5f, 0.25f, 0.25f}},
             .n_last_rows = 1,
             .last_sums = {},
             .column_sums = {{0.5, 0.25, 0.25}},
             .square_sums = {}});
  EXPECT_EQ(taps.all().n_last_rows, 1);
  EXPECT_EQ(taps.all().last_rows, (std::vector<std::vector<float>>{{0.5f, 0.25f, 0.25f}}));
  EXPECT_EQ(taps.all().column_sums, (std::vector<std::vector<double>>{{2.5, 0.25, 0.25}}));
}

}  // namespace
}  // namespace winnow::attention
