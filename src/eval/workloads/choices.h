#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/run/prompt.h"
#include "eval/run/workload.h"

namespace winnow::eval {

// A prompt and several continuations, each scored by its log-probability. The prompt is read and
// compressed once; every continuation starts from a copy of that cache.
struct Choices {
  Prompt prompt;
  std::vector<std::vector<TokenId>> continuations = {};
  std::vector<std::string> texts = {};       // of the continuations, as the results show them
  std::vector<std::string> references = {};  // the right ones
  // log_probs  [continuation], natural logarithm of the probability of all its tokens
  std::function<std::vector<Score>(std::span<const double> log_probs)> score;
};

// Requires: no continuation is empty.
std::unique_ptr<Workload> MakeWorkload(Choices choices);
// The choices of a workload; null if it is of another kind.
const Choices* AsChoices(const Workload& workload);

}  // namespace winnow::eval
