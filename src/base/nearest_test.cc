#include "base/nearest.h"

#include <gtest/gtest.h>

#include <array>

namespace winnow {
namespace {

constexpr std::array<std::string_view, 3> kWords = {"snapkv", "streaming", "h2o"};

TEST(NearestTest, FindsSlipsOfTheFingers) {
  EXPECT_EQ(NearestWord("snapvk", kWords), "snapkv");       // swapped
  EXPECT_EQ(NearestWord("streamin", kWords), "streaming");  // one letter missing
  EXPECT_EQ(NearestWord("h20", kWords), "h2o");             // replaced
  EXPECT_EQ(NearestWord("h2o", kWords), "h2o");
}

TEST(NearestTest, CaseIsNoDifference) {
  EXPECT_EQ(NearestWord("H2O", kWords), "h2o");
  EXPECT_EQ(NearestWord("SnapKV", kWords), "snapkv");
}

TEST(NearestTest, OtherWordsAreNotNear) {
  EXPECT_EQ(NearestWord("pyramid", kWords), "");
  EXPECT_EQ(NearestWord("", {}), "");
}

}  // namespace
}  // namespace winnow
