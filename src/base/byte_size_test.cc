#include "base/byte_size.h"

#include <gtest/gtest.h>

#include <string>

namespace winnow {
namespace {

TEST(ParseByteSize, ReadsNumbersWithAndWithoutSuffix) {
  EXPECT_EQ(ParseByteSize("1"), 1);
  EXPECT_EQ(ParseByteSize("268435456"), int64_t{1} << 28);
  EXPECT_EQ(ParseByteSize("256M"), int64_t{1} << 28);
  EXPECT_EQ(ParseByteSize("512k"), 512 * 1024);
  EXPECT_EQ(ParseByteSize("1.5g"), int64_t{3} << 29);
  EXPECT_EQ(ParseByteSize(".001K"), 1);
}

TEST(ParseByteSize, RefusesTheRest) {
  for (const char* text : {"", "k", ".", "0", "0.5", "-1", "+1", "1e9", "1T", "1 M", "1MM", "inf",
                           "nan", "0x10", "1.2.3", "9.1e18", "9000000000000000001G"}) {
    EXPECT_EQ(ParseByteSize(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseByteSize(std::string(400, '9')), std::nullopt);
}

}  // namespace
}  // namespace winnow
