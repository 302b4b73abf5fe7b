#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/run/prompt.h"
#include "eval/run/workload.h"

namespace winnow::eval {

// A prompt answered greedily, and the answer scored.
struct Question {
  Prompt prompt;
  int64_t max_tokens = 0;
  std::vector<std::string> stop = {};
  std::vector<std::string> references = {};  // right answers, as the results show them
  std::function<std::vector<Score>(const std::string& answer)> score;
};

std::unique_ptr<Workload> MakeWorkload(Question question);
// The question of a workload; null if it is of another kind.
const Question* AsQuestion(const Workload& workload);

}  // namespace winnow::eval
