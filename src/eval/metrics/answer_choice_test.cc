#include "eval/metrics/answer_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace winnow::eval {
namespace {

TEST(AnswerChoice, TheLikeliestDecides) {
  EXPECT_TRUE(LikeliestIsRight(std::vector<WeighedAnswer>{{-2, false}, {-1, true}, {-3, false}}));
  EXPECT_FALSE(LikeliestIsRight(std::vector<WeighedAnswer>{{-2, true}, {-1, false}, {-3, true}}));
  EXPECT_FALSE(LikeliestIsRight(std::vector<WeighedAnswer>{{-1, false}, {-1, true}}));
}

TEST(AnswerChoice, ShareOfTheRightInTheProbabilityOfAll) {
  const std::vector<WeighedAnswer> answers = {
      {std::log(0.2), true}, {std::log(0.1), true}, {std::log(0.3), false}};
  EXPECT_NEAR(ShareOfRight(answers), 0.5, 1e-12);
  EXPECT_EQ(ShareOfRight(std::vector<WeighedAnswer>{{-1, true}, {-2, true}}), 1);
  EXPECT_EQ(ShareOfRight(std::vector<WeighedAnswer>{{-1, false}}), 0);
}

TEST(AnswerChoice, LongAnswersAreNotLostToZero) {
  const std::vector<WeighedAnswer> answers = {{-2000, true}, {-2000, false}};
  EXPECT_NEAR(ShareOfRight(answers), 0.5, 1e-12);
}

}  // namespace
}  // namespace winnow::eval
