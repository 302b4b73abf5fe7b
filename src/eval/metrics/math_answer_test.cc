#include "eval/metrics/math_answer.h"

#include <gtest/gtest.h>

#include <vector>

#include "eval/metrics/keywords.h"

namespace winnow::eval {
namespace {

TEST(LastNumber, AsItStands) {
  EXPECT_EQ(LastNumber("3 apples and 1,250.50 dollars."), "1250.50");
  EXPECT_EQ(LastNumber("it is -4."), "-4");
  EXPECT_EQ(LastNumber("it costs $18"), "18");
  EXPECT_EQ(LastNumber("about .5 of it"), ".5");
  EXPECT_EQ(LastNumber("none"), "");
}

TEST(FinalAnswer, IsWhatIsCalledSo) {
  EXPECT_EQ(FinalAnswer("First, the answer is 3.\nNo, the answer is: 4.\nDone"), "4.");
  EXPECT_EQ(FinalAnswer("The answer is 3? No: the answer is 4."), "4.");
  EXPECT_EQ(FinalAnswer("Answer: (b)"), "(b)");
  EXPECT_EQ(FinalAnswer("a long way\n\nso 17\n"), "so 17");
  EXPECT_EQ(FinalAnswer(""), "");
}

TEST(SameMathAnswer, ByType) {
  EXPECT_TRUE(SameMathAnswer("yes, it is true", "true", "bool"));
  EXPECT_TRUE(SameMathAnswer("No.", "false", "bool"));
  EXPECT_FALSE(SameMathAnswer("", "false", "bool"));  // says neither
  EXPECT_TRUE(SameMathAnswer("(b)", "(b)", "option"));
  EXPECT_FALSE(SameMathAnswer("(a)", "(b)", "option"));
  EXPECT_FALSE(SameMathAnswer("none", "(b)", "option"));
  EXPECT_TRUE(SameMathAnswer("12 metres", "12", "integer"));
  EXPECT_FALSE(SameMathAnswer("12.1", "12", "integer"));
  EXPECT_TRUE(SameMathAnswer("1,250", "1250", "integer"));
  EXPECT_TRUE(SameMathAnswer("0.51", "0.5", "float"));
  EXPECT_FALSE(SameMathAnswer("0.53", "0.5", "float"));
  EXPECT_TRUE(SameMathAnswer("1/2", "0.5", "float"));
  EXPECT_TRUE(SameMathAnswer("[1, 2.02]", "[1,2]", "list of float"));
  EXPECT_FALSE(SameMathAnswer("[1]", "[1,2]", "list of integer"));
}

TEST(HasWhole, IsNoPartOfALongerWordOrNumber) {
  for (const char* answer : {"70467", "It is 70467.", "70467, I think", "(70467)",
                             "704672 or 70467", "1 70467 2", "-70467", "code:70467.\n"}) {
    EXPECT_TRUE(HasWhole(answer, "70467")) << answer;
  }
  for (const char* answer :
       {"", "7046", "704672", "170467", "70467.5", "1,70467", "70467kg", "x70467"}) {
    EXPECT_FALSE(HasWhole(answer, "70467")) << answer;
  }
  EXPECT_TRUE(HasWhole("Eat a Sandwich, and sit.", "eat a sandwich"));
  EXPECT_FALSE(HasWhole("eat a sandwiches", "eat a sandwich"));
  EXPECT_TRUE(HasWhole("\"quoted\" words", "\"quoted\""));
  EXPECT_FALSE(HasWhole("anything", ""));
}

TEST(FoundFraction, InAnyCase) {
  const std::vector<std::string> wanted = {"DLMTX", "abc", "zzz", "9"};
  EXPECT_DOUBLE_EQ(FoundFraction("dlmtx and ABC", wanted), 0.5);
  EXPECT_EQ(FoundFraction("x", {}), 0);
}

TEST(KeyWordShare, CommonWordsDoNotCount) {
  // eat, sandwich, sit, dolores, park, sunny, day
  const std::string needle = "eat a sandwich and sit in Dolores Park on a sunny day";
  EXPECT_DOUBLE_EQ(KeyWordShare("Eat a sandwich!", needle), 2.0 / 7);
  EXPECT_EQ(KeyWordShare("it is in the and", needle), 0);
  EXPECT_EQ(KeyWordShare(needle, needle), 1);
  // Words of the question do not count either.
  const std::string question = "What is the best thing to do in San Francisco?";
  EXPECT_EQ(KeyWordShare("the best in San Francisco", needle, question), 0);
  EXPECT_EQ(KeyWordShare(question, question, question), 0);
}

}  // namespace
}  // namespace winnow::eval
