#include "table.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::apps {
namespace {

using report::Record;

const std::vector<Record> kRows = {
    {{"method", "snapkv"}, {"a", "1.0 ± 0.5"}, {"b", "22222"}, {"c", "333"}},
    {{"method", "h2o"}, {"a", "2"}, {"b", "3"}, {"c", "4"}}};

TEST(TableWithin, StaysWholeWhereItFits) {
  const std::string whole = report::ToMarkdown(kRows);
  EXPECT_EQ(TableWithin(kRows, 1, 0), whole);
  const size_t width = whole.find('\n');  // in columns: the header is ASCII
  EXPECT_EQ(TableWithin(kRows, 1, width), whole);
  EXPECT_NE(TableWithin(kRows, 1, width - 1), whole);
}

TEST(TableWithin, RepeatsTheKeysInEachPart) {
  EXPECT_EQ(TableWithin(kRows, 1, 24),
            "| method | a         |\n"
            "| ------ | --------- |\n"
            "| snapkv | 1.0 ± 0.5 |\n"
            "| h2o    | 2         |\n"
            "\n"
            "| method | b     | c   |\n"
            "| ------ | ----- | --- |\n"
            "| snapkv | 22222 | 333 |\n"
            "| h2o    | 3     | 4   |\n");
}

TEST(TableWithin, IsAListWhereNoColumnFits) {
  const std::vector<Record> rows = {{{"task", "needle"}, {"measures", "one two three four five"}},
                                    {{"task", "kld"}, {"measures", "six"}}};
  EXPECT_EQ(TableWithin(rows, 1, 20),
            "task: needle\n"
            "measures: one two\n"
            "    three four five\n"
            "\n"
            "task: kld\n"
            "measures: six\n");
}

}  // namespace
}  // namespace winnow::apps
