#include "report/parse_json.h"

#include <gtest/gtest.h>

namespace winnow::report {
namespace {

TEST(ParseJson, IsTheInverseOfToJson) {
  const std::string text =
      R"({"a":[1,-2,0.5,null,true,"x\n\u00e9"],"b":{"c":[]},"":18446744073709551615.0})";
  const auto value = ParseJson(text);
  ASSERT_TRUE(value) << value.error().message;
  const auto again = ParseJson(ToJson(*value));
  ASSERT_TRUE(again);
  EXPECT_EQ(ToJson(*again), ToJson(*value));
  const Record& record = std::get<Record>(value->data);
  ASSERT_EQ(record.fields.size(), 3u);
  EXPECT_EQ(std::get<int64_t>(std::get<List>(record.Find("a")->data)[1].data), -2);
  EXPECT_EQ(std::get<std::string>(std::get<List>(record.Find("a")->data)[5].data), "x\n\u00e9");
}

TEST(ParseJson, IntegersThatDoNotFitAreDoubles) {
  const auto value = ParseJson("18446744073709551615");
  ASSERT_TRUE(value);
  EXPECT_EQ(std::get<double>(value->data), 18446744073709551615.0);
}

TEST(ParseJson, ErrorsSayWhere) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "[1] x"}) {
    const auto value = ParseJson(text);
    ASSERT_FALSE(value) << text;
    EXPECT_NE(value.error().message.find("not JSON at byte"), std::string::npos);
  }
  const auto deep = ParseJson(std::string(101, '[') + std::string(101, ']'));
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("100 levels"), std::string::npos);
  EXPECT_TRUE(ParseJson(std::string(100, '[') + std::string(100, ']')));
  EXPECT_TRUE(ParseJson("[1, {\"a\": []}]", 4));
  EXPECT_EQ(ParseJson("[1, {\"a\": []}]", 3).error().message, "more than 3 values");
}

}  // namespace
}  // namespace winnow::report
