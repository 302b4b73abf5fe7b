#include "base/parse_text.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(ParseInteger, NothingBeforeOrAfter) {
  EXPECT_EQ(*ParseInteger("-12"), -12);
  for (const char* text : {"", " 1", "1 ", "0x1", "1e3", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInteger(text).has_value()) << text;
  }
}

TEST(ParseInteger, WithinBounds) {
  EXPECT_EQ(*ParsePositive("1"), 1);
  EXPECT_EQ(ParsePositive("0").error().message, "found 0, expected 1 or more");
  EXPECT_EQ(*ParseCount("0"), 0);
  EXPECT_EQ(ParseCount("-1").error().message, "found -1, expected 0 or more");
}

TEST(ParseBytes, SaysWhatIsExpected) {
  EXPECT_EQ(*ParseBytes("1.5k"), 1536);
  EXPECT_EQ(ParseBytes("much").error().message,
            "found 'much', expected bytes such as 268435456, 512k, 256M or 1.5G");
}

TEST(ParseRanges, NumbersRangesAndSteps) {
  EXPECT_EQ(*ParseRanges("512"), (std::vector<int64_t>{512}));
  EXPECT_EQ(*ParseRanges("-1,4,2-4"), (std::vector<int64_t>{-1, 4, 2, 3, 4}));
  EXPECT_EQ(*ParseRanges("0-1000+400"), (std::vector<int64_t>{0, 400, 800}));
  EXPECT_EQ(*ParseRanges("1-16*2"), (std::vector<int64_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(*ParseRanges("9223372036854775806-9223372036854775807"),
            (std::vector<int64_t>{9223372036854775806, 9223372036854775807}));
  for (const char* text : {"", "a", "1,", "4-1", "1-", "0-8*2", "1-8*1", "1-8+0", "0-999999999"}) {
    EXPECT_FALSE(ParseRanges(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace winnow
