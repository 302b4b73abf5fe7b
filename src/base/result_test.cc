#include "base/result.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace winnow {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return Error{"odd: " + std::to_string(x)};
  return x / 2;
}

Result<int> Quarter(int x) {
  WINNOW_ASSIGN(const int half, Half(x));
  WINNOW_TRY(Half(half));
  return Half(half);
}

TEST(Result, CarriesValueOrError) {
  EXPECT_EQ(Quarter(12).value(), 3);
  EXPECT_EQ(Quarter(6).error().message, "odd: 3");
  EXPECT_EQ(Quarter(7).value_or(-1), -1);
}

TEST(Result, MovesOnlyTypes) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 5);
}

TEST(Result, Void) {
  EXPECT_TRUE(Result<void>().has_value());
  EXPECT_EQ(Result<void>(Error{"no"}).error().message, "no");
}

TEST(ResultDeathTest, ReadingTheWrongSideIsABug) {
  EXPECT_DEATH((void)Half(1).value(), "the value of a Result");
  EXPECT_DEATH((void)Half(2).error(), "the error of a Result");
}

}  // namespace
}  // namespace winnow
