#include "eval/metrics/answer_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace winnow::eval {
namespace {

TEST(AnswerChoice, TheLikeliestDecides) {
  EXPECT_TRUE(ArgMaxIsRight(std::vector<ScoredAnswer>{{-2, false}, {-1, true}, {-3, false}}));
  EXPECT_FALSE(ArgMaxIsRight(std::vector<ScoredAnswer>{{-2, true}, {-1, false}, {-3, true}}));
  EXPECT_FALSE(ArgMaxIsRight(std::vector<ScoredAnswer>{{-1, false}, {-1, true}}));
}

TEST(AnswerChoice, ShareOfTheRightInTheProbabilityOfAll) {
  const std::vector<ScoredAnswer> answers = {
      {std::log(0.2), true}, {std::log(0.1), true}, {std::log(0.3), false}};
  EXPECT_NEAR(ProbabilityOfRight(answers), 0.5, 1e-12);
  EXPECT_EQ(ProbabilityOfRight(std::vector<ScoredAnswer>{{-1, true}, {-2, true}}), 1);
  EXPECT_EQ(ProbabilityOfRight(std::vector<ScoredAnswer>{{-1, false}}), 0);
}

TEST(AnswerChoice, LongAnswersAreNotLostToZero) {
  const std::vector<ScoredAnswer> answers = {{-2000, true}, {-2000, false}};
  EXPECT_NEAR(ProbabilityOfRight(answers), 0.5, 1e-12);
}

}  // namespace
}  // namespace winnow::eval
