#include "eval/run/results_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

namespace winnow::eval {
namespace {

const ResultKey kKey = {"1.0",
                        "sha256:aa",
                        "ruler",
                        "snapkv:window=16",
                        "ratio 0.25",
                        "f16",
                        "2048/vt/3",
                        "snapkv:window=16,kernel=5",
                        0xFEDCBA9876543210u};

SampleResult SomeResult() {
  SampleResult result;
  result.outcome.scores = {{"nll", 0.1 + 0.2, 511}, {"exact", 1, 1}};
  result.outcome.cache_bytes = 123;
  result.outcome.cache_bytes_with_lists = 234;
  result.outcome.cache_bytes_full_f16 = 456;
  result.outcome.kept = 12.5;
  result.outcome.details = {{"answer", "a \"b\"\n"}, {"turns", report::List{"x", 1}}};
  return result;
}

class Results : public testing::Test {
 protected:
  ~Results() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "winnow-results-" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST_F(Results, ComeBackAsTheyWere) {
  {
    auto file = ResultsFile::Open(path_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->Find(kKey), nullptr);
    ASSERT_TRUE(file->Append(kKey, SomeResult(), {{"model", "x"}, {"winnow", "1.0+abc"}}));
    ResultKey other = kKey;
    other.sample = "2048/vt/4";
    ASSERT_TRUE(file->AppendPoint(other, {{"tokens", 1000}}));
    EXPECT_EQ(file->Find(other), nullptr);
    ASSERT_TRUE(file->Append(other, {.problem = "too long"}, {}));
    ASSERT_TRUE(file->AppendPoint(kKey, {{"tokens", 2000}}));  // left by a run that was killed
  }
  auto file = ResultsFile::Open(path_);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->n_skipped_lines(), 0);  // points do not count
  const SampleResult* found = file->Find(kKey);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->outcome.scores, SomeResult().outcome.scores);  // to the last bit
  EXPECT_EQ(found->build, "1.0+abc");
  EXPECT_EQ(found->outcome.cache_bytes, 123);
  EXPECT_EQ(found->outcome.cache_bytes_with_lists, 234);
  EXPECT_EQ(found->outcome.cache_bytes_full_f16, 456);
  EXPECT_EQ(found->outcome.kept, 12.5);
  EXPECT_EQ(report::ToJson(found->outcome.details), report::ToJson(SomeResult().outcome.details));
  ResultKey other = kKey;
  other.sample = "2048/vt/4";
  ASSERT_NE(file->Find(other), nullptr);
  EXPECT_EQ(file->Find(other)->problem, "too long");
}

TEST_F(Results, EverythingInTheKeyCounts) {
  auto file = ResultsFile::Open(path_);
  ASSERT_TRUE(file->Append(kKey, SomeResult(), {}));
  auto again = ResultsFile::Open(path_);
  ASSERT_NE(again->Find(kKey), nullptr);
  std::vector<ResultKey> others(9, kKey);
  others[0].version = "1.1";
  others[1].model_hash = "sha256:ab";
  others[2].task = "longeval";
  others[3].method = "snapkv";
  others[4].budget = "ratio 0.5";
  others[5].cache_types = "q8_0";
  others[6].sample = "2048/vt/5";
  others[7].configuration = "snapkv:window=16,kernel=7";
  others[8].fingerprint = 1;
  for (const ResultKey& other : others) EXPECT_EQ(again->Find(other), nullptr);
}

TEST_F(Results, ATornLineCostsOneSample) {
  {
    auto file = ResultsFile::Open(path_);
    ASSERT_TRUE(file->Append(kKey, SomeResult(), {}));
  }
  std::ofstream(path_, std::ios::app) << R"({"task":"ruler","sample":"2048/v)";
  auto file = ResultsFile::Open(path_);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->n_skipped_lines(), 1);
  EXPECT_NE(file->Find(kKey), nullptr);
  ResultKey other = kKey;
  other.sample = "next";
  ASSERT_TRUE(file->Append(other, SomeResult(), {}));
  auto again = ResultsFile::Open(path_);
  EXPECT_NE(again->Find(other), nullptr);  // on a line of its own
  EXPECT_EQ(again->n_skipped_lines(), 1);
}

TEST_F(Results, ScoresThatAreNotFiniteComeBackByName) {
  SampleResult result = SomeResult();
  result.outcome.scores = {{"nll", std::nan(""), 511}, {"top", HUGE_VAL, 1}, {"low", -HUGE_VAL, 1}};
  result.outcome.kept = std::nan("");
  {
    auto file = ResultsFile::Open(path_);
    ASSERT_TRUE(file->Append(kKey, result, {}));
  }
  auto again = ResultsFile::Open(path_);
  ASSERT_TRUE(again) << again.error().message;
  const SampleResult* found = again->Find(kKey);
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->outcome.scores.size(), 3u);
  EXPECT_TRUE(std::isnan(found->outcome.scores[0].value));
  EXPECT_EQ(found->outcome.scores[0].weight, 511);
  EXPECT_EQ(found->outcome.scores[1].value, HUGE_VAL);
  EXPECT_EQ(found->outcome.scores[2].value, -HUGE_VAL);
  EXPECT_TRUE(std::isnan(found->outcome.kept));
}

TEST_F(Results, AScoreThatIsNoNumberIsAnErrorWithItsLine) {
  const std::string line = report::ToJson(ToRecord(kKey, SomeResult()));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = line;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path_, std::ios::trunc) << line << "\n\n" << changed << "\n";
    const auto file = ResultsFile::Open(path_);
    return file ? std::string() : file.error().message;
  };
  EXPECT_EQ(with("\"exact\":1.0", "\"exact\":2"), "");
  for (const char* wrong : {"null", "true", "\"1.0\"", "\"NaN\"", "[1]", "{}"}) {
    const std::string message = with("\"exact\":1.0", std::string("\"exact\":") + wrong);
    EXPECT_NE(message.find(path_ + ":3"), std::string::npos) << message;
    EXPECT_NE(message.find("exact"), std::string::npos) << message;
  }
  EXPECT_NE(with("\"nll\":511.0", "\"nll\":-1").find("weight"), std::string::npos);
  EXPECT_NE(with("\"nll\":511.0", "\"nll\":\"nan\"").find("weight"), std::string::npos);
  EXPECT_NE(with("\"kept\":12.5", "\"kept\":null").find("kept"), std::string::npos);
  EXPECT_EQ(with("\"cache_bytes\":123", "\"cache_size\":1"),
            "");  // written by another build: skipped
}

TEST_F(Results, CannotBeWritten) { EXPECT_FALSE(ResultsFile::Open("/nowhere/results.jsonl")); }

}  // namespace
}  // namespace winnow::eval
