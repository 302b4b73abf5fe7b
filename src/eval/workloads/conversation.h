#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/run/prompt.h"
#include "eval/run/workload.h"

namespace winnow::eval {

// A user's messages, each answered greedily with the same cache: entries evicted in one turn are
// missing in the next.
struct Conversation {
  std::vector<std::string> messages;
  int64_t max_tokens = 0;  // of an answer
};

// Scores "answer_tokens" and "tokens_per_second"; the answers are in the details as "turns".
// `prompts` and `tokenizer` must outlive the workload.
std::unique_ptr<Workload> MakeWorkload(Conversation conversation, const PromptWriter& prompts,
                                       const tokenizer::Tokenizer& tokenizer);

}  // namespace winnow::eval
