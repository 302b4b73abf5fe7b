#include "base/fixed.h"

#include <gtest/gtest.h>

#include <limits>

namespace winnow {
namespace {

TEST(Fixed, HasSoManyDecimals) {
  EXPECT_EQ(Fixed(3.14159, 2), "3.14");
  EXPECT_EQ(Fixed(-3.14159, 0), "-3");
  EXPECT_EQ(Fixed(0, 3), "0.000");
  EXPECT_EQ(Fixed(1e300, 1).size(), 303U);
}

TEST(Fixed, HasNoMinusBeforeNothing) {
  EXPECT_EQ(Fixed(-0.001, 2), "0.00");
  EXPECT_EQ(Fixed(-0.0, 0), "0");
  EXPECT_EQ(Fixed(-0.006, 2), "-0.01");
}

TEST(Fixed, NamesWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Fixed(infinity, 2), "inf");
  EXPECT_EQ(Fixed(-infinity, 2), "-inf");
  EXPECT_EQ(Fixed(-std::numeric_limits<double>::quiet_NaN(), 2), "nan");
}

}  // namespace
}  // namespace winnow
