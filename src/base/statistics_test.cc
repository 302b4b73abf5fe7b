#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace winnow {
namespace {

TEST(MeanEstimate, MeanAndStandardError) {
  MeanEstimate estimate;
  EXPECT_EQ(estimate.standard_error(), 0);
  for (const double value : {1.0, 2.0, 3.0, 6.0}) estimate.Add(value);
  EXPECT_EQ(estimate.count(), 4);
  EXPECT_DOUBLE_EQ(estimate.mean(), 3);
  EXPECT_DOUBLE_EQ(estimate.standard_error(), std::sqrt(14.0 / 4 / 3));  // deviations 4, 1, 0, 9
}

TEST(Percentile, InterpolatesBetweenNeighbours) {
  const std::vector<float> values = {0, 1, 2, 10};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 0);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 1.5);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 10);
  EXPECT_DOUBLE_EQ(Percentile(std::vector<float>{7}, 0.3), 7);
}

}  // namespace
}  // namespace winnow
