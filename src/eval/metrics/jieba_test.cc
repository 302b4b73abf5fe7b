// Compares words and scores of Chinese texts with Python's jieba and LongBench's scorer
// (tools/eval_oracles/make_chinese.py).
#include "eval/metrics/jieba.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "eval/metrics/chinese.h"
#include "eval/metrics/normalise.h"
#include "eval/tasks/data.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;

// Tests run in the source root.
constexpr const char* kExpected = "src/eval/metrics/expected/jieba.json";
constexpr const char* kRandomTables = "src/eval/metrics/expected/jieba";
// pip install --no-deps --target build/jieba jieba==0.42.1
constexpr const char* kPackage = "build/jieba";

std::vector<Row> Cases(const char* name) {
  auto all = ReadJsonObject(kExpected);
  if (!all) {
    ADD_FAILURE() << all.error().message;
    return {};
  }
  return all->Rows(name).value_or(std::vector<Row>());
}

// Expects all texts of a list, `at_least` many, to be cut as Python's jieba cuts them.
void ExpectSameWords(const Jieba& jieba, const char* name, size_t at_least) {
  const std::vector<Row> cases = Cases(name);
  ASSERT_GE(cases.size(), at_least);
  for (const Row& row : cases) {
    const std::string text = row.Text("text").value_or("");
    const auto words = row.Texts("words");
    ASSERT_TRUE(words);
    EXPECT_EQ(Join(jieba.Cut(text), "/"), Join(*words, "/")) << text;
  }
}

TEST(Jieba, CutsRandomTextsWithRandomTablesAsThePackageDoes) {
  const auto jieba = Jieba::Open(kRandomTables);
  ASSERT_TRUE(jieba) << jieba.error().message;
  ExpectSameWords(*jieba, "random", 200);
}

TEST(Jieba, WhatIsNotUtf8StaysInTheText) {
  const auto jieba = Jieba::Open(kRandomTables);
  ASSERT_TRUE(jieba);
  const std::string text = "\xE5\xA4\xA9\xE5\xA4 x\xFF.";
  EXPECT_EQ(Join(jieba->Cut(text), ""), text);
  EXPECT_TRUE(jieba->Cut("").empty());
}

TEST(Jieba, WithThePackagesOwnTables) {
  if (!fs::exists(std::string(kPackage) + "/jieba/dict.txt")) {
    GTEST_SKIP() << "skipped: no jieba package (pip install --no-deps --target " << kPackage
                 << " jieba==0.42.1)";
  }
  const auto jieba = Jieba::Open(kPackage);
  ASSERT_TRUE(jieba) << jieba.error().message;
  ExpectSameWords(*jieba, "sentences", 25);
  const std::vector<Row> pairs = Cases("pairs");
  ASSERT_GE(pairs.size(), 60u);
  for (const Row& row : pairs) {
    const std::string answer = row.Text("answer").value_or("");
    const std::string reference = row.Text("reference").value_or("");
    const auto expected = [&](const char* name) {
      const report::Value* value = *row.Field(name);
      if (const auto* whole = std::get_if<int64_t>(&value->data)) {
        return static_cast<double>(*whole);
      }
      return std::get<double>(value->data);
    };
    EXPECT_NEAR(ChineseQaF1(*jieba, answer, reference), expected("f1"), 1e-9) << answer;
    EXPECT_NEAR(ChineseRougeL(*jieba, answer, reference), expected("rouge_l"), 1e-7) << answer;
  }
}

// A folder with copies of the random tables, one of them replaced.
class BadTables : public testing::Test {
 protected:
  BadTables() {
    std::string name = testing::TempDir() + "winnow-jieba-XXXXXX";
    folder_ = mkdtemp(name.data());
    fs::copy(kRandomTables, folder_, fs::copy_options::recursive);
  }
  ~BadTables() override { fs::remove_all(folder_); }
  std::string ErrorWith(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ + "/" + file, std::ios::binary) << text;
    const auto jieba = Jieba::Open(folder_);
    return jieba ? "" : jieba.error().message;
  }
  std::string folder_;
};

TEST_F(BadTables, AreRefusedByFileAndPlace) {
  EXPECT_NE(ErrorWith("dict.txt", "天 3 n\n地\n").find("dict.txt:2: found '地'"),
            std::string::npos);
  EXPECT_NE(ErrorWith("dict.txt", "").find("no word"), std::string::npos);
  fs::remove(folder_ + "/dict.txt");
  EXPECT_NE(Jieba::Open(folder_).error().message.find("PyPI's package jieba"), std::string::npos);
}

TEST_F(BadTables, OfTheModelToo) {
  for (const char* text : {"", "P={'B': ", "P={'X': -1}", "P={'B': {'E': 'x'}}", "P=7"}) {
    const std::string error = ErrorWith("finalseg/prob_trans.py", text);
    EXPECT_NE(error.find("prob_trans.py: expected"), std::string::npos) << text << ": " << error;
  }
  fs::remove(folder_ + "/finalseg/prob_trans.py");
  EXPECT_NE(Jieba::Open(folder_).error().message.find("prob_trans.py"), std::string::npos);
}

TEST(ChineseScores, Normalisation) {
  EXPECT_EQ(NormalizeChinese("红 灯笼》，Is「A」 …"), "红灯笼isa");
  EXPECT_EQ(NormalizeChinese("《"), "《");  // the published list lacks it
  EXPECT_EQ(ChineseParagraphNumber("段落12"), "12");
  EXPECT_EQ(ChineseParagraphNumber("12"), "");
}

}  // namespace
}  // namespace winnow::eval
