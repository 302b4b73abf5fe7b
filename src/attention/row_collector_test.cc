#include "attention/row_collector.h"
#include "kernels/backends.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace winnow::attention {
namespace {

using Which = RowSpec::Which;
using List = std::vector<int64_t>;

TEST(ChooseRows, NoneAllLastAndTheMiddlesOfEqualParts) {
  EXPECT_EQ(ChooseRows({}, 10), List{});
  EXPECT_EQ(ChooseRows({.which = Which::kAll}, 3), (List{0, 1, 2}));
  EXPECT_EQ(ChooseRows({.which = Which::kLast, .n = 2}, 5), (List{3, 4}));
  EXPECT_EQ(ChooseRows({.which = Which::kLast, .n = 9}, 2), (List{0, 1}));
  // Parts of 4 rows: 0..3, 4..7, 8..11.
  EXPECT_EQ(ChooseRows({.which = Which::kEven, .n = 3}, 12), (List{2, 6, 10}));
  EXPECT_EQ(ChooseRows({.which = Which::kEven, .n = 5}, 5), (List{0, 1, 2, 3, 4}));
  EXPECT_EQ(ChooseRows({.which = Which::kEven, .n = 50}, 2), (List{0, 1}));
}

class RowCollectorTest : public testing::Test {
 protected:
  // [rows, 2]: row i is {10 i, 10 i + 1} plus `more`.
  kernels::Matrix Block(int64_t first, int64_t n, float more) {
    storages_.push_back(std::move(backend_->Allocate(n * 2 * 4)).value());
    const kernels::Matrix matrix = {storages_.back().get(), 0, n, 2, 2};
    std::vector<float> values;
    for (int64_t i = first; i < first + n; ++i) {
      values.push_back(static_cast<float>(10 * i) + more);
      values.push_back(static_cast<float>(10 * i + 1) + more);
    }
    backend_->Write(matrix, values);
    return matrix;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  std::vector<std::unique_ptr<kernels::Storage>> storages_;
};

TEST_F(RowCollectorTest, RowsOfSeveralBlocks) {
  RowCollector collector;
  collector.Start({.which = Which::kEven,
                   .n = 2,
                   .queries_before_rope = true,
                   .queries = true,
                   .outputs = true,
                   .norms = true},
                  8);  // rows 2 and 6
  EXPECT_EQ(collector.first_row(), 2);
  const std::vector<cache::Position> positions = {100, 101, 102, 103};
  for (const int64_t first : {0, 4}) {
    collector.AddBefore(*backend_, first, Block(first, 4, 0), Block(first, 4, 3), positions);
    collector.AddQueries(*backend_, first, Block(first, 4, 1000));
    collector.AddOutputs(*backend_, first, Block(first, 4, 2000));
  }
  const Rows& rows = collector.all();
  EXPECT_EQ(rows.rows, (List{2, 6}));
  EXPECT_EQ(rows.positions, (std::vector<cache::Position>{102, 102}));
  EXPECT_EQ(rows.queries_before_rope, (std::vector<float>{20, 21, 60, 61}));
  EXPECT_EQ(rows.queries, (std::vector<float>{1020, 1021, 1060, 1061}));
  EXPECT_EQ(rows.outputs, (std::vector<float>{2020, 2021, 2060, 2061}));
  // sqrt(23^2 + 24^2), sqrt(63^2 + 64^2)
  ASSERT_EQ(rows.norms.size(), 2u);
  EXPECT_FLOAT_EQ(rows.norms[0], 33.24154f);
  EXPECT_FLOAT_EQ(rows.norms[1], 89.80535f);
}

TEST_F(RowCollectorTest, NothingIsCopiedThatWasNotAskedFor) {
  RowCollector collector;
  collector.Start({}, 4);
  EXPECT_FALSE(collector.any());
  collector.AddBefore(*backend_, 0, Block(0, 4, 0), {}, {});
  collector.AddQueries(*backend_, 0, Block(0, 4, 0));
  collector.AddOutputs(*backend_, 0, Block(0, 4, 0));
  EXPECT_EQ(collector.all().size(), 0);
  collector.Start({.which = Which::kLast, .n = 1, .queries = true}, 4);
  collector.AddQueries(*backend_, 0, Block(0, 4, 0));
  EXPECT_EQ(collector.all().queries, (std::vector<float>{30, 31}));
  EXPECT_TRUE(collector.all().outputs.empty());
}

}  // namespace
}  // namespace winnow::attention
