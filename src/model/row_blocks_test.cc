#include "model/row_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::model {
namespace {

TEST(RowBlocks, FewRowsAreNotLeftOver) {
  EXPECT_EQ(NextBlock(1000, 512, 1000), 512);
  EXPECT_EQ(NextBlock(40, 512, 32), 24);
  EXPECT_EQ(NextBlock(20, 512, 16), 20);
  EXPECT_EQ(NextBlock(100, 512, 0), 1);
}

std::vector<int64_t> Blocks(const std::vector<int64_t>& n_rows, int64_t row_block,
                            int64_t max_rows = 512) {
  std::vector<attention::LayerPass::Span> spans;
  int64_t total = 0;
  for (const int64_t n : n_rows) {
    spans.push_back({.sequence = nullptr, .n_rows = n, .first_output = 0});
    total += n;
  }
  std::vector<int64_t> blocks;
  for (int64_t row = 0; row < total; row += blocks.back()) {
    blocks.push_back(NextInvariantBlock(spans, row, row_block, max_rows));
    if (blocks.back() < 1) break;
  }
  return blocks;
}

// Spans are split after every 128 of their rows and nowhere else.
TEST(RowBlocks, InvariantBlocksCutEverySpanAtTheSameRows) {
  using List = std::vector<int64_t>;
  EXPECT_EQ(Blocks({300}, 512), (List{128, 128, 44}));
  EXPECT_EQ(Blocks({1, 300}, 512), (List{129, 128, 44}));
  EXPECT_EQ(Blocks({300, 1, 1, 5}, 512), (List{128, 128, 51}));
  EXPECT_EQ(Blocks({100, 100, 100, 100, 100, 100}, 512), (List{500, 100}));
  EXPECT_EQ(Blocks({128, 129, 1}, 512), (List{256, 2}));
  EXPECT_EQ(Blocks({20, 17, 9}, 8), (List{8, 8, 4, 8, 8, 1, 8, 1}));
  // A small max_rows takes fewer spans at once, split at the same rows.
  EXPECT_EQ(Blocks({100, 100, 5, 5, 100}, 512, 32), (List{100, 100, 10, 100}));
}

}  // namespace
}  // namespace winnow::model
