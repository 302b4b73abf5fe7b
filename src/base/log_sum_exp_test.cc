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

TEST(LogSumExp, LogSoftmaxSumsToOne) {
  const std::vector<float> logits = {1000, 999, 1001};
  std::vector<float> log_probs(3);
  LogSoftmax(logits, log_probs);
  double sum = 0;
  for (const float log_prob : log_probs) sum += std::exp(double{log_prob});
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(log_probs[2] - log_probs[1], 2, 1e-6);
}

}  // namespace
}  // namespace winnow
