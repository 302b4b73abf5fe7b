#pragma once

#include <span>

// Scores of answers of which some are right. [TruthfulQA, arXiv:2109.07958, section 3.2]
namespace winnow::eval {

struct ScoredAnswer {
  double log_prob = 0;  // of all tokens of the answer
  bool right = false;
};

// MC1: whether the likeliest answer is right (the first of equal ones). Requires: an answer.
bool ArgMaxIsRight(std::span<const ScoredAnswer> answers);
// MC2: the share of the right answers in the total probability. Requires: an answer.
double ProbabilityOfRight(std::span<const ScoredAnswer> answers);

}  // namespace winnow::eval
