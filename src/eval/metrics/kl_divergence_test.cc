#include "eval/metrics/kl_divergence.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::eval {
namespace {

std::vector<float> LogsOf(const std::vector<double>& probabilities) {
  std::vector<float> logs;
  for (const double p : probabilities) logs.push_back(static_cast<float>(std::log(p)));
  return logs;
}

TEST(RowComparison, ByHand) {
  // Reference {1/2, 1/4, 1/4}, this run {1/4, 1/2, 1/4}: KL = 1/2 ln 2 - 1/4 ln 2 = 1/4 ln 2.
  std::vector<float> logits = LogsOf({0.25, 0.5, 0.25});
  for (float& logit : logits) logit += 3;  // logits need no normalisation
  const RowComparison row = RowComparison::Of(logits, LogsOf({0.5, 0.25, 0.25}), 0);
  EXPECT_NEAR(row.kld, 0.25 * std::log(2.0), 1e-6);
  EXPECT_NEAR(row.nll, std::log(4.0), 1e-6);
  EXPECT_NEAR(row.nll_base, std::log(2.0), 1e-6);
  EXPECT_NEAR(row.p_difference, -0.25, 1e-6);
  EXPECT_FALSE(row.same_top);
}

TEST(RowComparison, AgainstItselfIsZero) {
  const std::vector<float> logs = LogsOf({0.7, 0.2, 0.1});
  const RowComparison row = RowComparison::Of(logs, logs, 2);
  EXPECT_NEAR(row.kld, 0, 1e-7);
  EXPECT_NEAR(row.p_difference, 0, 1e-7);
  EXPECT_TRUE(row.same_top);
}

TEST(KlDivergence, SumsUp) {
  KlDivergence total;
  total.Add({.nll = 2, .nll_base = 1, .kld = 0.3, .p_difference = 0.3, .same_top = true});
  total.Add({.nll = 1, .nll_base = 1, .kld = 0.1, .p_difference = -0.4, .same_top = false});
  EXPECT_DOUBLE_EQ(total.log_ratio().mean(), 0.5);
  EXPECT_DOUBLE_EQ(total.kld().mean(), 0.2);
  EXPECT_DOUBLE_EQ(total.same_top().mean(), 0.5);
  EXPECT_DOUBLE_EQ(total.rms_p_difference(), std::sqrt((0.09 + 0.16) / 2));
  EXPECT_EQ(total.SortedKlds(), (std::vector<float>{0.1f, 0.3f}));
}

}  // namespace
}  // namespace winnow::eval
