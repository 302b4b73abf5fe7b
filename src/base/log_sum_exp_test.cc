#include "base/log_sum_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace winnow {
namespace {

TEST(LogSumExp, IsExactForLargeLogits) {
  EXPECT_DOUBLE_EQ(LogSumExp(std::vector<float>{1000, 1000}), 1000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(LogSumExp(std::vector<float>{-1000, -1000, -1000, -1000}),
                   -1000 + std::log(4.0));
}

}  // namespace
}  // namespace winnow
