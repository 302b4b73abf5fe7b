#include "eval/metrics/answer_choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace winnow::eval {
namespace {

const WeighedAnswer& Likeliest(std::span<const WeighedAnswer> answers) {
  WINNOW_CHECK(!answers.empty());
  return *std::ranges::max_element(answers, {}, &WeighedAnswer::log_prob);
}

}  // namespace

bool LikeliestIsRight(std::span<const WeighedAnswer> answers) { return Likeliest(answers).right; }

double ShareOfRight(std::span<const WeighedAnswer> answers) {
  const double largest = Likeliest(answers).log_prob;  // taken off, so that none is lost to zero
  double right = 0;
  double all = 0;
  for (const WeighedAnswer& answer : answers) {
    const double p = std::exp(answer.log_prob - largest);
    all += p;
    right += answer.right ? p : 0;
  }
  return right / all;
}

}  // namespace winnow::eval
