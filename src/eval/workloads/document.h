#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "eval/run/workload.h"

namespace winnow::eval {

// A text that is read, and compressed, before anything is asked about it. Every question goes on
// from what was kept then; its tokens follow one by one, as generated ones do, so that no method
// compresses knowing them. Answers are greedy. Scores are means over the questions; bytes and
// entries are those right after the document.
struct Document {
  struct Asked {
    std::vector<TokenId> tokens;          // behind the document
    std::vector<std::string> references;  // right answers, as the results show them
    std::function<std::vector<Score>(const std::string& answer)> score;
  };
  std::vector<TokenId> tokens;
  std::vector<Asked> questions;  // one at least, with scores of the same names
  int64_t max_tokens = 0;        // of an answer
  std::vector<std::string> stop = {};
};

std::unique_ptr<Workload> MakeWorkload(Document document);

}  // namespace winnow::eval
