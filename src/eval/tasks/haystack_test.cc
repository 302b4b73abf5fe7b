#include "eval/tasks/haystack.h"

#include <gtest/gtest.h>

#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::eval {
namespace {

TEST(SentenceEnds, AfterPunctuationAndQuotes) {
  //                          0123456789012345678901234567890
  EXPECT_EQ(SentenceEnds("He ran. \"Go!\" 3.5 m?) x"), (std::vector<size_t>{7, 13, 21}));
  EXPECT_EQ(SentenceEnds("a line\nanother."), (std::vector<size_t>{6, 15}));
  EXPECT_TRUE(SentenceEnds("").empty());
  EXPECT_TRUE(SentenceEnds("no end").empty());
}

class HaystackTest : public testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
    std::string text;
    for (int i = 0; i < 20; ++i) text += "Sentence number " + std::to_string(i) + " ends here. ";
    hay_ = std::make_unique<Haystack>(*tokenizer_, text);
  }
  int64_t Count(const std::string& text) const {
    return static_cast<int64_t>(
        tokenizer_->Encode(text, {.add_special = false, .parse_special = false}).size());
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<Haystack> hay_;
};

TEST_F(HaystackTest, HasTheLengthAskedFor) {
  for (const int64_t n : {0, 10, 100, 3000}) {  // more than the text has: it begins again
    EXPECT_EQ(Count(hay_->Build(n, 0, {})), n);
  }
}

TEST_F(HaystackTest, NeedlesStandBetweenSentences) {
  const std::string needle = "The code is 7.";
  EXPECT_TRUE(hay_->Build(200, 0, {{needle, 0}}).starts_with(needle + " Sentence number 0"));
  EXPECT_TRUE(hay_->Build(200, 0, {{needle, 100}}).ends_with(" " + needle));
  const std::string middle = hay_->Build(200, 0, {{needle, 50}});
  EXPECT_NE(middle.find("ends here. " + needle + " Sentence"), std::string::npos) << middle;
  const double at = static_cast<double>(middle.find(needle)) / static_cast<double>(middle.size());
  EXPECT_GT(at, 0.2);
  EXPECT_LE(at, 0.5);
}

TEST_F(HaystackTest, DepthIsCountedInTokens) {
  // 20 sentences of four tokens and 19 characters, then 20 of seven and seven.
  std::string text;
  for (int i = 0; i < 20; ++i) text += " hello hello hello.";
  for (int i = 0; i < 20; ++i) text += " z z z.";
  const Haystack hay(*tokenizer_, text.substr(1));
  const std::string built = hay.Build(220, 0, {{"Found.", 50}});
  const size_t at = built.find("Found.");
  EXPECT_EQ(built.substr(at), "Found." + text.substr(text.size() - 16 * 7)) << built;
}

TEST_F(HaystackTest, SeveralNeedlesAllStandInTheText) {
  const std::string text = hay_->Build(300, 3, {{"One.", 10}, {"Two.", 50}, {"Three.", 50}});
  EXPECT_TRUE(text.starts_with("Sentence number 3"));
  for (const char* needle : {"One.", "Two.", "Three."}) {
    EXPECT_NE(text.find(needle), std::string::npos) << text;
  }
  EXPECT_LT(text.find("One."), text.find("Two."));
}

}  // namespace
}  // namespace winnow::eval
