// Compares every metric with the published scorer that it reproduces
// (tools/eval_oracles/make_expected.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "eval/metrics/answer_choice.h"
#include "eval/metrics/bleu.h"
#include "eval/metrics/class_match.h"
#include "eval/metrics/edit_similarity.h"
#include "eval/metrics/keywords.h"
#include "eval/metrics/math_answer.h"
#include "eval/metrics/normalise.h"
#include "eval/metrics/number_match.h"
#include "eval/metrics/option_letter.h"
#include "eval/metrics/qa_f1.h"
#include "eval/metrics/rouge.h"
#include "eval/tasks/data.h"

namespace winnow::eval {
namespace {

// Tests run in the source root.
constexpr const char* kFolder = "src/eval/metrics/expected/";
constexpr size_t kMin = 50;  // cases per metric

class ExpectedScores : public testing::Test {
 protected:
  std::vector<Row> Cases(std::string_view name) {
    auto all = ReadJsonObject(kFolder + std::string(name) + ".json");
    if (!all) {
      ADD_FAILURE() << all.error().message;
      return {};
    }
    auto rows = all->Rows(name);
    EXPECT_TRUE(rows && rows->size() >= kMin) << name;
    return rows.value_or(std::vector<Row>());
  }
  static std::string Text(const Row& row, std::string_view name) {
    auto text = row.Text(name);
    EXPECT_TRUE(text) << name;
    return text.value_or(std::string());
  }
  static double Number(const Row& row, std::string_view name) {
    const report::Value* value = row.record().Find(name);
    if (const auto* whole = std::get_if<int64_t>(&value->data)) return static_cast<double>(*whole);
    return std::get<double>(value->data);
  }
};

TEST_F(ExpectedScores, Normalisation) {
  for (const Row& row : Cases("texts")) {
    EXPECT_EQ(NormalizeAnswer(Text(row, "answer")), Text(row, "normalised"));
  }
}

TEST_F(ExpectedScores, QaF1AndExactMatch) {
  for (const Row& row : Cases("texts")) {
    const std::string answer = Text(row, "answer");
    const std::string reference = Text(row, "reference");
    EXPECT_NEAR(QaF1(answer, reference), Number(row, "qa_f1"), 1e-9) << answer;
    EXPECT_EQ(ExactMatch(answer, reference), Number(row, "exact")) << answer;
  }
}

TEST_F(ExpectedScores, Rouge) {
  for (const Row& row : Cases("texts")) {
    const std::string answer = Text(row, "answer");
    const std::string reference = Text(row, "reference");
    // The package adds 1e-8 to the denominator.
    EXPECT_NEAR(RougeL(answer, reference), Number(row, "rouge_l"), 1e-7) << answer;
    EXPECT_NEAR(Rouge1(answer, reference), Number(row, "rouge_1"), 1e-9) << answer;
  }
}

TEST_F(ExpectedScores, EditSimilarity) {
  for (const Row& row : Cases("texts")) {
    EXPECT_NEAR(EditSimilarity(Text(row, "answer"), Text(row, "reference")), Number(row, "edit"),
                1e-12)
        << Text(row, "answer");
  }
  for (const Row& row : Cases("codes")) {
    const std::string line = FirstCodeLine(Text(row, "completion"));
    EXPECT_EQ(line, Text(row, "line"));
    EXPECT_NEAR(EditSimilarity(line, Text(row, "reference")), Number(row, "edit"), 1e-12) << line;
  }
}

TEST_F(ExpectedScores, Bleu) {
  for (const Row& row : Cases("texts")) {
    EXPECT_NEAR(Bleu(Text(row, "answer"), Text(row, "reference")), Number(row, "bleu"), 1e-6)
        << Text(row, "answer");
  }
}

TEST_F(ExpectedScores, ClassMatch) {
  const auto all = ReadJsonObject(kFolder + std::string("class_matches.json"));
  ASSERT_TRUE(all);
  const auto classes = all->Texts("classes");
  ASSERT_TRUE(classes);
  for (const Row& row : Cases("class_matches")) {
    EXPECT_NEAR(ClassMatch(Text(row, "answer"), Text(row, "reference"), *classes),
                Number(row, "score"), 1e-12)
        << Text(row, "answer");
  }
}

TEST_F(ExpectedScores, NumberMatch) {
  for (const Row& row : Cases("numbers")) {
    EXPECT_NEAR(NumberMatch(Text(row, "answer"), Text(row, "number")), Number(row, "score"), 1e-12)
        << Text(row, "answer");
  }
  EXPECT_EQ(ParagraphNumber("Paragraph 19"), "19");
}

TEST_F(ExpectedScores, ClassesAndNumbersAreOftenRight) {
  for (const char* name : {"class_matches", "numbers"}) {
    const std::vector<Row> rows = Cases(name);
    const auto n_right = std::count_if(rows.begin(), rows.end(),
                                       [](const Row& row) { return Number(row, "score") > 0; });
    EXPECT_GT(3 * n_right, static_cast<int64_t>(rows.size())) << name;
    EXPECT_LT(3 * n_right, 3 * static_cast<int64_t>(rows.size())) << name;
  }
}

TEST_F(ExpectedScores, TextsFoundAndKeyWords) {
  for (const Row& row : Cases("found")) {
    const std::string answer = Text(row, "answer");
    const std::vector<std::string> references = *row.Texts("references");
    std::string needle;
    double part = 0;
    for (const std::string& reference : references) {
      needle += (needle.empty() ? "" : " ") + reference;
      part = std::max(part, FoundFraction(answer, std::span(&reference, 1)));
    }
    EXPECT_NEAR(FoundFraction(answer, references), Number(row, "all"), 1e-12) << answer;
    EXPECT_EQ(part, Number(row, "part")) << answer;
    EXPECT_NEAR(KeyWordShare(answer, needle), Number(row, "key_words"), 1e-12) << answer;
  }
}

TEST_F(ExpectedScores, LastNumber) {
  for (const Row& row : Cases("last_numbers")) {
    EXPECT_EQ(LastNumber(Text(row, "text")), Text(row, "number")) << Text(row, "text");
  }
}

TEST_F(ExpectedScores, MathAnswers) {
  for (const Row& row : Cases("math_answers")) {
    const std::string answer = Text(row, "answer");
    const bool right = std::get<bool>(row.record().Find("right")->data);
    EXPECT_EQ(SameMathAnswer(FinalAnswer(answer), Text(row, "reference"), Text(row, "type")), right)
        << Text(row, "type") << " " << Text(row, "reference") << ": " << answer;
  }
}

TEST_F(ExpectedScores, OptionLetters) {
  for (const Row& row : Cases("letters")) {
    EXPECT_EQ(OptionLetters(Text(row, "answer")), Text(row, "letters")) << Text(row, "answer");
  }
}

TEST_F(ExpectedScores, WeighedChoices) {
  for (const Row& row : Cases("choices")) {
    const auto& log_probs = std::get<report::List>(row.record().Find("log_probs")->data);
    const auto& right = std::get<report::List>(row.record().Find("right")->data);
    std::vector<ScoredAnswer> answers;
    for (size_t i = 0; i < log_probs.size(); ++i) {
      answers.push_back(
          {std::get<double>(log_probs[i].data), std::get<int64_t>(right[i].data) != 0});
    }
    EXPECT_EQ(ArgMaxIsRight(answers) ? 1 : 0, Number(row, "mc1"));
    EXPECT_NEAR(ProbabilityOfRight(answers), Number(row, "mc2"), 1e-9);
  }
}

TEST_F(ExpectedScores, NumberAfterHashes) {
  for (const Row& row : Cases("hashes")) {
    EXPECT_EQ(NumberAfterHashes(Text(row, "text")), Text(row, "number")) << Text(row, "text");
  }
}

}  // namespace
}  // namespace winnow::eval
