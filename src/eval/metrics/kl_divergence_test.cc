#include "eval/metrics/kl_divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/log_sum_exp.h"

namespace winnow::eval {
namespace {

std::vector<float> LogProbabilities(const std::vector<double>& probabilities) {
  std::vector<float> logs(probabilities.size());
  for (size_t i = 0; i < logs.size(); ++i) logs[i] = static_cast<float>(std::log(probabilities[i]));
  return logs;
}

TEST(RowComparison, ByHand) {
  // Reference {1/2, 1/4, 1/4}, this run {1/4, 1/2, 1/4}: KL = 1/2 ln 2 - 1/4 ln 2 = 1/4 ln 2.
  std::vector<float> logits = LogProbabilities({0.25, 0.5, 0.25});
  for (float& logit : logits) logit += 3;  // logits need no normalisation
  const RowComparison row = RowComparison::Make(logits, LogProbabilities({0.5, 0.25, 0.25}), 0);
  EXPECT_NEAR(row.kld, 0.25 * std::log(2.0), 1e-6);
  EXPECT_NEAR(row.nll, std::log(4.0), 1e-6);
  EXPECT_NEAR(row.nll_base, std::log(2.0), 1e-6);
  EXPECT_NEAR(row.p_difference, -0.25, 1e-6);
  EXPECT_FALSE(row.same_top);
}

TEST(RowComparison, TheSameLogitsAreAtZero) {
  std::vector<float> logits(1000);
  for (int i = 0; i < 1000; ++i) logits[i] = static_cast<float>(std::sin(i * i)) * 7;
  std::vector<float> base(logits.size());
  LogSoftmax(logits, base);
  EXPECT_EQ(RowComparison::Make(logits, base, 3).kld, 0);
}

TEST(RowComparison, AgainstItselfIsZero) {
  const std::vector<float> logs = LogProbabilities({0.7, 0.2, 0.1});
  const RowComparison row = RowComparison::Make(logs, logs, 2);
  EXPECT_NEAR(row.kld, 0, 1e-7);
  EXPECT_NEAR(row.p_difference, 0, 1e-7);
  EXPECT_TRUE(row.same_top);
}

// The file says of token 2 only that it is 16 nats or more below the likeliest; here it is 25
// below.
TEST(KlDivergence, WhatAFileCannotTellDoesNotMoveTheRatio) {
  const std::vector<float> base = {-1e-7f, -15, -16};
  const std::vector<float> logits = {0, -15, -25};
  const RowComparison row = RowComparison::Make(logits, base, 2);
  EXPECT_TRUE(row.clipped);
  EXPECT_FALSE(RowComparison::Make(logits, base, 1).clipped);
  EXPECT_FALSE(RowComparison::Make(logits, std::vector<float>{-0.1f, -3, -9}, 2).clipped);
  KlDivergence total;
  total.Add(row);
  EXPECT_EQ(total.log_ratio().mean(), 0);
  EXPECT_EQ(total.n_clipped(), 1);
  EXPECT_NEAR(total.nll().mean(), 25, 1e-5);
  // More likely here than the file's bound: the difference to the bound counts.
  total = {};
  total.Add(RowComparison::Make(std::vector<float>{0, -15, -10}, base, 2));
  EXPECT_NEAR(total.log_ratio().mean(), -6, 1e-3);
}

TEST(KlDivergence, NanIsSortedAboveNumbersAndIsNoAgreement) {
  const RowComparison row =
      RowComparison::Make(std::vector<float>{std::nanf(""), 1}, LogProbabilities({0.5, 0.5}), 0);
  EXPECT_TRUE(std::isnan(row.kld));
  EXPECT_FALSE(row.same_top);
  KlDivergence total;
  total.Add(row);
  total.Add({.nll = 1, .nll_base = 1, .kld = 0.5});
  total.Add(row);
  total.Add({.nll = 1, .nll_base = 1, .kld = 0.25});
  const std::vector<float> sorted = total.SortedKlds();
  EXPECT_EQ(sorted[0], 0.25f);
  EXPECT_EQ(sorted[1], 0.5f);
  EXPECT_TRUE(std::isnan(sorted[2]) && std::isnan(sorted[3]));
  EXPECT_EQ(Percentile(sorted, 0), 0.25);
  EXPECT_TRUE(std::isnan(Percentile(sorted, 1)));
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
