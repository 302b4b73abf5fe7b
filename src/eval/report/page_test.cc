#include "eval/report/page.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "eval/tasks/data.h"
#include "eval/testing/fake_results.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;

std::string Bytes(int64_t bytes) { return std::to_string(bytes) + " B"; }

class EvalPage : public testing::Test {
 protected:
  ~EvalPage() override { fs::remove_all(folder_); }

  // The numbers of a figure, from the file beside the page.
  std::vector<Row> FigureNumbers(const EvalResults& results, const std::string& figure) {
    fs::create_directories(folder_);
    const auto written = MakePage(results, Bytes).Write((folder_ / "page.html").string());
    EXPECT_TRUE(written);
    const auto rows = ReadCsv((folder_ / "page" / (figure + ".csv")).string(), true);
    EXPECT_TRUE(rows) << figure;
    return rows ? *rows : std::vector<Row>();
  }
  static std::set<std::string> NamesIn(const std::vector<Row>& rows, const char* column) {
    std::set<std::string> names;
    for (const Row& row : rows) names.insert(row.TextOrEmpty(column));
    return names;
  }
  // Adds `n` copies of the second variant with other cache types and this score.
  static void AddType(EvalResults& results, const std::string& types, double score, int n = 1) {
    for (int i = 0; i < n; ++i) {
      results.variants.push_back(results.variants[1]);
      results.variants.back().cache_types = types;
      for (EvaluatedSample& sample : results.samples) {
        sample.results.push_back(sample.results[1]);
        sample.results.back()->outcome.scores[0].value = score;
      }
    }
  }

  fs::path folder_ =
      fs::path(testing::TempDir()) /
      (std::string("winnow-page-") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(EvalPage, FrontHasALineForEveryTypeOfCache) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, .5}});
  EXPECT_EQ(NamesIn(FigureNumbers(results, "front"), "series"),
            (std::set<std::string>{"full", "h2o"}));
  AddType(results, "q8_0", .25);
  EXPECT_EQ(NamesIn(FigureNumbers(results, "front"), "series"),
            (std::set<std::string>{"full f16", "h2o f16", "h2o q8_0"}));
}

TEST_F(EvalPage, FrontOfEveryLeadingColumn) {
  Task task = FakeTask(Column::Kind::kPercent);
  task.columns.push_back({.name = "bleu", .title = "BLEU"});
  EvalResults results = FakeResults(task, {{"mc", 1, .5}, {"gen", .5, .1}});
  RenameScores(results, "gen", "bleu");
  EXPECT_EQ(NamesIn(FigureNumbers(results, "front"), "score, %"),
            (std::set<std::string>{"100.0", "50.0"}));
  EXPECT_EQ(NamesIn(FigureNumbers(results, "front-2"), "BLEU, %"),
            (std::set<std::string>{"10.0", "50.0"}));
  RenameScores(results, "mc", "bleu");
  EXPECT_EQ(FigureNumbers(results, "front").size(), 2u);  // not empty
}

TEST_F(EvalPage, HeatMapDoesNotMixTypesOfCache) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, .5}, {"b", 1, .5}});
  AddType(results, "q8_0", .25, 20);
  std::map<std::string, double> found;
  for (const Row& row : FigureNumbers(results, "parts")) {
    const std::string value = row.TextOrEmpty("8, b");
    if (!value.empty()) found[row.TextOrEmpty("method and cache")] = std::stod(value);
  }
  EXPECT_EQ(found, (std::map<std::string, double>{{"h2o f16", 50}, {"h2o q8_0", 25}}));
}

TEST_F(EvalPage, NamesTheBuildThatFoundTheResults) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, .5}});
  EXPECT_EQ(MakePage(results, Bytes).Html().find("computed by winnow"), std::string::npos);
  results.n_of_other_builds = 2;
  results.other_build = "0.1.0+e664c7b";
  EXPECT_NE(MakePage(results, Bytes).Html().find("2 computed by winnow 0.1.0+e664c7b"),
            std::string::npos);
}

TEST_F(EvalPage, SpeedAgainstDepth) {
  const Task task = FakeTask(Column::Kind::kPercent);
  EvalResults results = FakeResults(task, {{"a", 1, 1}, {"b", 1, 1}, {"b", 1, -1}});
  const int64_t prompts[] = {100, 1000, 1010};
  for (size_t i = 0; i < 3; ++i) {
    results.samples[i].labels = {{"length", i == 0 ? 100 : 1000}};
    for (size_t variant = 0; variant < 2; ++variant) {
      SampleResult& result = *results.samples[i].results[variant];
      if (!result.problem.empty()) continue;
      const double speed = i == 0 ? 50.0 : variant == 0 ? 10.0 + static_cast<double>(i) : 40.0;
      result.outcome.scores.push_back({"decode_tokens_per_second", speed});
      result.outcome.details = {{"prompt_tokens", prompts[i]}, {"generated_tokens", 20}};
    }
  }
  const std::vector<Row> rows = FigureNumbers(results, "speed");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(NamesIn(rows, "series"), (std::set<std::string>{"full", "h2o size 8"}));
  EXPECT_EQ(std::stod(rows[1].TextOrEmpty("tokens before, mean")), 1015);  // mean of two samples
  EXPECT_EQ(std::stod(rows[1].TextOrEmpty("tokens per second")), 11.5);
  EXPECT_EQ(std::stod(rows[3].TextOrEmpty("tokens per second")), 40);

  // Answers vary in length in a task that does not measure speed: it gets no such figure.
  EvalResults answers = results;
  for (EvaluatedSample& sample : answers.samples) {
    for (auto& result : sample.results) result->outcome.scores.resize(1);
  }
  std::filesystem::remove_all(folder_);
  FigureNumbers(answers, "front");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "page" / "speed.csv"));

  for (EvaluatedSample& sample : results.samples) sample.labels = {{"length", 100}};
  std::filesystem::remove_all(folder_);
  FigureNumbers(results, "front");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "page" / "speed.csv"));  // only one length
}

}  // namespace
}  // namespace winnow::eval
