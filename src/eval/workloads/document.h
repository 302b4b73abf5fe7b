#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/run/workload.h"

namespace winnow::eval {

// A text that is read and compressed before anything is asked about it. Every question continues
// from the cache kept then; its tokens are decoded one by one, like generated tokens, so that no
// method compresses with knowledge of them. Answers are greedy. Scores are means over the
// questions; bytes and entries are those right after the document.
struct Document {
  struct Asked {
    std::vector<TokenId> tokens;          // appended to the document
    std::vector<std::string> references;  // right answers, as the results show them
    std::function<std::vector<Score>(const std::string& answer)> score;
  };
  std::vector<TokenId> tokens;
  std::vector<Asked> questions;  // at least one, with scores of the same names
  int64_t max_tokens = 0;        // of an answer
  std::vector<std::string> stop = {};
};

std::unique_ptr<Workload> MakeWorkload(Document document);

}  // namespace winnow::eval
