#include "report/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "report/parse_json.h"

namespace winnow::report {
namespace {

TEST(Json, KeepsOrderAndNests) {
  const Record record = {
      {"z", 1}, {"a", Record{{"x", 0.5}, {"y", true}}}, {"l", List{1, "two", Value()}}};
  EXPECT_EQ(ToJson(record), R"({"z":1,"a":{"x":0.5,"y":true},"l":[1,"two",null]})");
  EXPECT_EQ(ToJson(Record{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

// A search for each name among the earlier ones would take minutes.
TEST(Json, ManyNamesTakeLinearTime) {
  Record record;
  for (int i = 0; i < 1'000'000; ++i) record.Add(std::to_string(i), i);
  EXPECT_GT(ToJson(record).size(), size_t{10'000'000});
}

TEST(Json, EscapesAndReplacesBadBytes) {
  EXPECT_EQ(ToJson(Value("a\"\n\xff"
                         "b")),
            "\"a\\\"\\n\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(ToJson(Value(std::string("a\0b", 3))), "\"a\\u0000b\"");
}

TEST(Json, NumbersJsonLacksKeepTheirNames) {
  EXPECT_EQ(ToJson(List{std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL, 1.0}),
            R"(["nan","nan","inf","-inf",1.0])");
  const std::vector<Record> rows = {{{"n", std::nan("")}}, {{"n", -HUGE_VAL}}};
  EXPECT_EQ(ToCsv(rows), "n\nnan\n-inf\n");
  EXPECT_EQ(ToMarkdown(rows), "|    n |\n| ---: |\n|  nan |\n| -inf |\n");
}

TEST(Json, NumbersAreReadBackByName) {
  for (const double value : {0.5, -3.0, HUGE_VAL, -HUGE_VAL}) {
    EXPECT_EQ(NumberIn(*ParseJson(ToJson(value))), value);
  }
  EXPECT_TRUE(std::isnan(NumberIn(*ParseJson(ToJson(std::nan("")))).value()));
  EXPECT_EQ(NumberIn(7), 7.0);
  for (const Value& other : {Value(), Value(true), Value("1"), Value("NaN"), Value(List{1})}) {
    EXPECT_EQ(NumberIn(other), std::nullopt);
  }
}

TEST(Json, LargeIntegersKeepEveryDigit) {
  EXPECT_EQ(ToJson(Value(int64_t{9007199254740993})), "9007199254740993");
}

TEST(Tables, JsonLinesAreOneObjectEach) {
  EXPECT_EQ(ToJsonLines(std::vector<Record>{{{"a", 1}}, {{"a", 2}}}), "{\"a\":1}\n{\"a\":2}\n");
}

TEST(Tables, CsvQuotesWhatNeedsIt) {
  const std::vector<Record> records = {
      {{"name", "a,b"}, {"n", 1}}, {{"name", "say \"x\""}, {"n", Value()}}, {{"n", 3}}};
  EXPECT_EQ(ToCsv(records), "name,n\n\"a,b\",1\n\"say \"\"x\"\"\",\n,3\n");
  EXPECT_EQ(ToCsv({}), "");
}

TEST(Tables, MarkdownPadsAndAlignsNumbersRight) {
  const std::vector<Record> records = {{{"test", "pp512"}, {"n", 5}},
                                       {{"test", "a|b"}, {"n", 12345}}};
  EXPECT_EQ(ToMarkdown(records),
            "| test  |     n |\n"
            "| ----- | ----: |\n"
            "| pp512 |     5 |\n"
            "| a\\|b  | 12345 |\n");
}

TEST(Tables, MarkdownCountsCharactersNotBytes) {
  EXPECT_EQ(ToMarkdown(std::vector<Record>{{{"t/s", "1 ± 2"}}, {{"t/s", "1 + 22"}}}),
            "| t/s    |\n| ------ |\n| 1 ± 2  |\n| 1 + 22 |\n");
}

TEST(Record, FindsByName) {
  const Record record = {{"a", 1}};
  ASSERT_NE(record.Find("a"), nullptr);
  EXPECT_EQ(std::get<int64_t>(record.Find("a")->data), 1);
  EXPECT_EQ(record.Find("b"), nullptr);
}

TEST(CountOrMean, IsWholeWhereItCanBe) {
  EXPECT_EQ(ToJson(CountOrMean(987.9999999999999)), "988");
  EXPECT_EQ(ToJson(CountOrMean(1825.0)), "1825");
  EXPECT_EQ(ToJson(CountOrMean(-3.0)), "-3");
  EXPECT_EQ(ToJson(CountOrMean(2.5)), "2.5");
  EXPECT_EQ(ToJson(CountOrMean(1.0 / 3)), "0.333333");
  EXPECT_EQ(ToJson(CountOrMean(NAN)), "\"nan\"");
}

}  // namespace
}  // namespace winnow::report
