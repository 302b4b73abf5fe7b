#include "eval/probes/measures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "eval/probes/haar.h"

namespace winnow::eval {
namespace {

// By hand: blocks of two have the means 2 and 4, the block of four 3.
TEST(Haar, DetailsOfFourNumbers) {
  const std::vector<double> signal = {1, 3, 2, 6};
  EXPECT_EQ(HaarDetail(signal, 1, 1), (std::vector<double>{-1, 1, -2, 2}));
  EXPECT_EQ(HaarDetail(signal, 1, 2), (std::vector<double>{-1, -1, 1, 1}));
}

TEST(Haar, ColumnsAreSignalsOfTheirOwn) {
  const std::vector<double> signal = {1, 10, 3, 10, 2, 0, 6, 20};
  EXPECT_EQ(HaarDetail(signal, 2, 1), (std::vector<double>{-1, 0, 1, 0, -2, -10, 2, 10}));
}

// TreeKV, section 3.2, as printed: filter and down-sample with g and h, then reconstruct from the
// details of one level alone.
std::vector<double> ByFilters(std::vector<double> signal, int level) {
  const double r = std::sqrt(2) / 2;
  std::vector<double> approximation = std::move(signal), detail;
  for (int l = 0; l < level; ++l) {
    std::vector<double> next;
    detail.clear();
    for (size_t i = 0; i < approximation.size(); i += 2) {
      next.push_back(r * (approximation[i] + approximation[i + 1]));
      detail.push_back(r * (approximation[i] - approximation[i + 1]));
    }
    approximation = std::move(next);
  }
  std::vector<double> rebuilt;
  for (const double d : detail) {
    rebuilt.push_back(r * d);
    rebuilt.push_back(-r * d);
  }
  for (int l = 1; l < level; ++l) {
    std::vector<double> next;
    for (const double a : rebuilt) next.insert(next.end(), {r * a, r * a});
    rebuilt = std::move(next);
  }
  return rebuilt;
}

TEST(Haar, AgreesWithTheFiltersOfThePaper) {
  Rng rng(5);
  std::vector<double> signal(64);
  for (double& value : signal) value = rng.Uniform() - 0.5;
  for (int level = 1; level <= 5; ++level) {
    const std::vector<double> detail = HaarDetail(signal, 1, level);
    const std::vector<double> expected = ByFilters(signal, level);
    for (size_t i = 0; i < signal.size(); ++i) EXPECT_NEAR(detail[i], expected[i], 1e-12) << level;
  }
}

TEST(Measures, EntropyOfEqualCountsIsTheirLogarithm) {
  EXPECT_DOUBLE_EQ(Entropy(std::vector<double>{3, 3, 3, 3}), std::log(4));
  EXPECT_DOUBLE_EQ(Entropy(std::vector<double>{7, 0}), 0);
  EXPECT_DOUBLE_EQ(Entropy(std::vector<double>{2, 1, 1}), 1.5 * std::log(2));
  EXPECT_EQ(Entropy(std::vector<double>{}), 0);
}

TEST(Measures, SparsityIsWhatTheLargestScoresLeave) {
  const std::vector<double> scores = {0.1, 0.6, 0.05, 0.25};
  EXPECT_DOUBLE_EQ(SparsityRate(scores, 0.5), 0.75);   // 0.6
  EXPECT_DOUBLE_EQ(SparsityRate(scores, 0.8), 0.5);    // 0.6 + 0.25
  EXPECT_DOUBLE_EQ(SparsityRate(scores, 0.94), 0.25);  // and 0.1
  EXPECT_DOUBLE_EQ(SparsityRate(scores, 1), 0);
  EXPECT_DOUBLE_EQ(SparsityRate(std::vector<double>{0, 0}, 0.95), 0.5);
}

TEST(Measures, SimilarityIsTheProductOfBothCosines) {
  // Keys: 1 is opposite to 0, 2 lies between; values: all alike but 2, which is opposite.
  const std::vector<float> keys = {1, 0, -2, 0, 1, 1, 0, 0};
  const std::vector<float> values = {1, 2, -5, 3};
  const std::vector<double> largest = LargestSimilarity({keys, 2}, {values, 1});
  EXPECT_EQ(largest[0], -1);
  EXPECT_DOUBLE_EQ(largest[1], -1);                // cosines -1 and 1
  EXPECT_NEAR(largest[2], std::sqrt(0.5), 1e-12);  // with 1: two negative ones
  EXPECT_EQ(largest[3], 0);                        // a key of zeros
  const std::vector<double> cosines = Cosines({keys, 2});
  ASSERT_EQ(cosines.size(), 6U);
  EXPECT_DOUBLE_EQ(cosines[0], -1);
  EXPECT_NEAR(cosines[1], std::sqrt(0.5), 1e-12);
}

// Worked out by hand: column sums 4 2 1 1 have the variance 2.
TEST(Measures, VarianceIsUnbiased) {
  EXPECT_DOUBLE_EQ(Variance(std::vector<double>{4, 2, 1, 1}), 2);
  EXPECT_EQ(Variance(std::vector<double>{4}), 0);
}

TEST(Measures, CountsOfBins) {
  EXPECT_EQ(Counts(std::vector<double>{-1, 0, 0.49, 0.5, 1, 3}, 0, 1, 2),
            (std::vector<double>{3, 3}));
}

}  // namespace
}  // namespace winnow::eval
