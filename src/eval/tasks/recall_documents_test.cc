#include "eval/tasks/recall_documents.h"

#include <gtest/gtest.h>

#include <iterator>

#include "eval/metrics/keywords.h"
#include "eval/tasks/builtin_text.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::eval {
namespace {

std::string ValueText(const RecallDocument& made) {
  std::string text = made.document + made.continued;
  for (const auto& message : made.messages) text += message.content + "\n";
  return text;
}

class RecallDocuments : public testing::TestWithParam<RecallKind> {
 protected:
  void SetUp() override {
    tokenizer_ = tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
  }
  RecallDocument Make(uint64_t seed, int64_t n_tokens = 1500, double depth = -1) const {
    Rng rng(seed);
    return MakeRecallDocument(GetParam(), n_tokens, depth, *tokenizer_, rng);
  }
  int64_t Count(const std::string& text) const {
    return static_cast<int64_t>(
        tokenizer_->Encode(text, {.add_special = false, .parse_special = false}).size());
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_P(RecallDocuments, HaveTheAnswerAndTheQuestion) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const RecallDocument made = Make(seed);
    EXPECT_FALSE(made.answer.empty());
    EXPECT_TRUE(HasWhole(ValueText(made), made.answer)) << made.answer << "\n" << ValueText(made);
    EXPECT_TRUE(!made.question.empty() || !made.continued.empty());
    EXPECT_EQ(made.messages.empty(), GetParam() != RecallKind::kDialogue);
  }
}

TEST_P(RecallDocuments, HaveAboutTheLengthAskedFor) {
  for (const int64_t n : {1500, 4000}) {
    const int64_t found = Count(ValueText(Make(3, n)));
    EXPECT_NEAR(static_cast<double>(found), static_cast<double>(n), 0.15 * static_cast<double>(n));
  }
}

TEST_P(RecallDocuments, AreTheSameForASeedAndOthersForAnother) {
  EXPECT_EQ(ValueText(Make(1)), ValueText(Make(1)));
  EXPECT_NE(ValueText(Make(1)), ValueText(Make(2)));
}

TEST_P(RecallDocuments, PutTheFactWhereItIsAskedFor) {
  if (GetParam() == RecallKind::kFewShot)
    return;  // `depth` chooses the label there, it moves no line
  const auto place = [&](double depth) {
    const RecallDocument made = Make(5, 3000, depth);
    const std::string text = ValueText(made);
    return static_cast<double>(text.find(made.answer)) / static_cast<double>(text.size());
  };
  EXPECT_LT(place(0), place(50));
  EXPECT_LT(place(50), place(100));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecallDocuments,
                         testing::Values(RecallKind::kNeedle, RecallKind::kKeyValue,
                                         RecallKind::kTwoHop, RecallKind::kFewShot,
                                         RecallKind::kDialogue),
                         [](const auto& kind) {
                           std::string name(kRecallKinds[static_cast<size_t>(kind.param)]);
                           std::erase(name, '-');
                           return name;
                         });

TEST(BuiltinText, IsProseInParagraphs) {
  const std::string& text = BuiltinText();
  EXPECT_GE(text.size(), size_t{256} << 10);
  EXPECT_EQ(text.find('{'), std::string::npos);
  EXPECT_EQ(text.find('}'), std::string::npos);
  EXPECT_EQ(text.find("  "), std::string::npos);
  EXPECT_NE(text.find("\n\n"), std::string::npos);
  // Sentences begin with a capital letter.
  for (size_t at = text.find(". "); at != std::string::npos; at = text.find(". ", at + 1)) {
    if (text.compare(at - 3, 3, "Mrs") == 0) continue;
    const char next = text[at + 2];
    EXPECT_TRUE(next == '"' || (next >= 'A' && next <= 'Z')) << text.substr(at, 40);
  }
}

}  // namespace
}  // namespace winnow::eval
