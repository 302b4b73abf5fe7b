#include "eval/report/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/testing/fake_results.h"

namespace winnow::eval {
namespace {

std::string Bytes(int64_t bytes) { return std::to_string(bytes) + " B"; }

TEST(Summary, GroupsCountTheSame) {
  const Task task = FakeTask(Column::Kind::kPercent);
  // a: 1 and 0, b: 1.
  const EvalResults results = FakeResults(task, {{"a", 1, 0}, {"a", 0, 0}, {"b", 1, 1}});
  EXPECT_DOUBLE_EQ(SummarizeColumn(results, 0, task.columns[0], "a")->value, 50);
  EXPECT_DOUBLE_EQ(SummarizeColumn(results, 0, task.columns[0])->value, 75);
  EXPECT_DOUBLE_EQ(SummarizeColumn(results, 1, task.columns[0])->value, 50);
  const auto rows = SampleRows(results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(std::get<double>(rows[1].Find("relative")->data), 100.0 * 50 / 75, 1e-9);
  EXPECT_DOUBLE_EQ(std::get<double>(rows[1].Find("cache_share")->data), 0.3);
  EXPECT_EQ(std::get<int64_t>(rows[1].Find("samples")->data), 3);
}

TEST(Summary, SharesAreWithListsOfTheFullCacheInF16) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, 1}, {"a", -1, 1}});
  results.variants[1] = {"full", "", "q8_0", {}};
  const auto rows = SampleRows(results);
  EXPECT_DOUBLE_EQ(*report::NumberIn(*rows[1].Find("cache_bytes")), 50);
  EXPECT_DOUBLE_EQ(*report::NumberIn(*rows[1].Find("cache_bytes_with_lists")), 60);
  EXPECT_DOUBLE_EQ(std::get<double>(rows[1].Find("cache_share")->data), 60.0 / 200);
  const auto table = SummaryTable(results, Bytes);
  EXPECT_EQ(std::get<std::string>(table[1].Find("cache")->data), Bytes(50));
  EXPECT_EQ(std::get<std::string>(table[1].Find("with lists")->data), Bytes(60));
  EXPECT_EQ(std::get<std::string>(table[1].Find("of full f16")->data), "30.0 %");
}

TEST(Summary, RelativeIsOfWhatBothCouldRun) {
  const Task task = FakeTask(Column::Kind::kPercent);
  const EvalResults results = FakeResults(task, {{"a", 1, 0.5}, {"a", 0, -1}});
  const auto rows = SampleRows(results);
  EXPECT_DOUBLE_EQ(std::get<double>(rows[1].Find("relative")->data), 50);
  EXPECT_EQ(std::get<int64_t>(rows[1].Find("samples")->data), 1);
  EXPECT_EQ(ListProblems(results),
            "results missing: 1; the first: 2 under h2o size 8: does not fit");
}

TEST(Summary, PerplexityWeighsTokens) {
  const Task task = FakeTask(Column::Kind::kPerplexity);
  const EvalResults results = FakeResults(task, {{"a", 1, 1, 300}, {"a", 3, 3, 100}});
  EXPECT_NEAR(SummarizeColumn(results, 0, task.columns[0])->value, std::exp(1.5), 1e-12);
  EvalResults shorter = results;
  shorter.samples[1].results[1]->outcome.cache_bytes = 10;  // 50 in the other, of 300 tokens
  shorter.samples[1].results[1]->outcome.cache_bytes_with_lists = 20;  // 60
  EXPECT_DOUBLE_EQ(*report::NumberIn(*SampleRows(shorter)[1].Find("cache_bytes")), 40);
  EXPECT_DOUBLE_EQ(std::get<double>(SampleRows(shorter)[1].Find("cache_share")->data), 50.0 / 200);
}

TEST(Summary, SpreadOfRuns) {
  const Task task = FakeTask(Column::Kind::kSpread, false);
  const EvalResults results = FakeResults(task, {{"a", 1, 1}, {"a", 3, 3}, {"b", 7, 7}});
  const auto a = SummarizeColumn(results, 0, task.columns[0], "a");
  EXPECT_DOUBLE_EQ(a->value, 2);
  EXPECT_DOUBLE_EQ(a->deviation, std::sqrt(2.0));
  const auto rows = SummaryTable(results, Bytes);
  ASSERT_EQ(rows.size(), 4u);  // two groups, two variants each
  EXPECT_EQ(std::get<std::string>(rows[0].Find("score")->data), "2.00 ± 1.41");
  EXPECT_EQ(std::get<std::string>(rows[2].Find("group")->data), "b");
  EXPECT_TRUE(GroupRows(results).empty());
}

TEST(Summary, LeadingColumnIsTheFirstWithScores) {
  Task task = FakeTask(Column::Kind::kPercent);
  task.columns.push_back({.name = "bleu", .title = "BLEU"});
  EvalResults results = FakeResults(task, {{"mc", 1, .5}, {"gen", .5, .1}});
  RenameScores(results, "gen", "bleu");
  EXPECT_EQ(LeadingTitle(results), "score or BLEU");
  const auto groups = GroupRows(results);
  EXPECT_EQ(std::get<double>(groups[1].Find("full")->data), 50);
  EXPECT_EQ(std::get<double>(groups[1].Find("h2o size 8")->data), 10);
  EXPECT_NEAR(std::get<double>(SampleRows(results)[1].Find("relative")->data), 40, 1e-9);

  RenameScores(results, "mc", "bleu");  // as if there were only one part
  EXPECT_EQ(LeadingTitle(results), "BLEU");
  EXPECT_NEAR(std::get<double>(SampleRows(results)[1].Find("relative")->data), 40, 1e-9);
}

TEST(Summary, NegativeZeroPrintsWithoutSign) {
  const Task task = FakeTask(Column::Kind::kMean);
  EvalResults results = FakeResults(task, {{"a", 1, 1}});
  results.samples[0].results[1]->outcome.scores[0].value = -0.001;
  EXPECT_EQ(std::get<std::string>(SummaryTable(results, Bytes)[1].Find("score")->data), "0.00");
}

TEST(Summary, GroupRows) {
  const Task task = FakeTask(Column::Kind::kMean);
  const EvalResults results = FakeResults(task, {{"a", 1, 2}, {"b", 3, -1}});
  const auto rows = GroupRows(results);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(std::get<double>(rows[0].Find("h2o size 8")->data), 2);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(rows[1].Find("h2o size 8")->data));
}

TEST(Summary, ErrorsAreThoseOfMeans) {
  const Task task = FakeTask(Column::Kind::kPercent);
  // Two groups of two, each with a standard error of 50 points: 50 / sqrt(2) for their mean.
  const EvalResults results =
      FakeResults(task, {{"a", 1, 0}, {"a", 0, 0}, {"b", 1, 1}, {"b", 0, 1}});
  EXPECT_DOUBLE_EQ(*SummarizeColumn(results, 0, task.columns[0], "a")->error, 50);
  EXPECT_NEAR(*SummarizeColumn(results, 0, task.columns[0])->error, 50 / std::sqrt(2.0), 1e-9);
  EXPECT_EQ(std::get<std::string>(SummaryTable(results, Bytes)[0].Find("score")->data),
            "50.00 ± 35.36");
  EXPECT_DOUBLE_EQ(std::get<double>(SampleRows(results)[1].Find("score_error")->data), 0);
  // Groups of one sample each: the error comes from how they differ.
  const EvalResults cells = FakeResults(task, {{"a", 1, 1}, {"b", 0, 1}, {"c", 1, 1}, {"d", 0, 1}});
  EXPECT_FALSE(SummarizeColumn(cells, 0, task.columns[0], "a")->error);
  EXPECT_NEAR(*SummarizeColumn(cells, 0, task.columns[0])->error, 100 * std::sqrt(1.0 / 3 / 4),
              1e-9);
}

TEST(Summary, PerplexityHasTheErrorOfItsMean) {
  const Task task = FakeTask(Column::Kind::kPerplexity);
  const EvalResults results = FakeResults(task, {{"a", 1, 1, 100}, {"a", 3, 3, 100}});
  EXPECT_NEAR(*SummarizeColumn(results, 0, task.columns[0])->error, std::exp(2.0) * 1, 1e-9);
}

TEST(Summary, NoShareOfWhatIsNoise) {
  const Task task = FakeTask(Column::Kind::kPercent);
  // 1 of 10: within two standard errors (10 points) of zero.
  std::vector<FakeCase> cases(10, {"a", 0, 0});
  cases[0] = {"a", 1, 1};
  cases[1] = {"a", 0, 1};
  const EvalResults noise = FakeResults(task, cases);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(SampleRows(noise)[1].Find("relative")->data));
  EXPECT_EQ(std::get<std::string>(SummaryTable(noise, Bytes)[1].Find("of full")->data), "");
  const auto has = [](const std::vector<std::string>& notes, std::string_view part) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(has(ListNotes(noise), "two standard errors of zero"));
  EXPECT_FALSE(has(ListNotes(noise), "scores 0"));
  const EvalResults nothing = FakeResults(task, {{"a", 0, 0}, {"a", 0, 0}});
  EXPECT_TRUE(has(ListNotes(nothing), "needle on builtin data"));
  const EvalResults right = FakeResults(task, {{"a", 1, 0}, {"a", 1, 1}});
  EXPECT_FALSE(has(ListNotes(right), "two standard errors of zero"));
}

TEST(Summary, MarksWhatExceedsItsShareOfBytes) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, 1}, {"a", 1, 1}});
  results.variants[1].equal_bytes = 0.3;  // exactly what it takes
  EXPECT_EQ(std::get<std::string>(SummaryTable(results, Bytes)[1].Find("of full f16")->data),
            "30.0 %");
  results.variants[1].equal_bytes = 0.25;
  EXPECT_EQ(std::get<std::string>(SummaryTable(results, Bytes)[1].Find("of full f16")->data),
            "30.0 % (over)");
}

TEST(Summary, AnInterruptedRunHasNoEmptyRows) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, 1}});
  results.samples[0].results[1].reset();
  results.stopped = true;
  EXPECT_EQ(SummaryTable(results, Bytes).size(), 1U);
  EXPECT_EQ(SampleRows(results).size(), 1U);
}

}  // namespace
}  // namespace winnow::eval
