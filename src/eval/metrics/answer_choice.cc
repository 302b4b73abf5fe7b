#include "eval/metrics/answer_choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace winnow::eval {
namespace {

const ScoredAnswer& ArgMax(std::span<const ScoredAnswer> answers) {
  WINNOW_CHECK(!answers.empty());
  return *std::ranges::max_element(answers, {}, &ScoredAnswer::log_prob);
}

}  // namespace

bool ArgMaxIsRight(std::span<const ScoredAnswer> answers) { return ArgMax(answers).right; }

double ProbabilityOfRight(std::span<const ScoredAnswer> answers) {
  const double largest = ArgMax(answers).log_prob;  // subtracted, so that exp does not underflow
  double right = 0;
  double all = 0;
  for (const ScoredAnswer& answer : answers) {
    const double p = std::exp(answer.log_prob - largest);
    all += p;
    right += answer.right ? p : 0;
  }
  return right / all;
}

}  // namespace winnow::eval
