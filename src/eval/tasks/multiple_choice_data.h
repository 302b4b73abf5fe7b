#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace winnow::eval {

// A question with lettered options, one of which is right.
struct ChoiceQuestion {
  std::string id;
  std::string group;     // subject or data set
  std::string document;  // read before the question; may be empty
  std::string question;
  std::vector<std::string> options;
  size_t right = 0;
  std::vector<ChoiceQuestion> examples = {};  // solved questions of the subject (MMLU's dev files)
  std::string ready_prompt = {};              // not empty: the whole prompt up to " A"
};

inline constexpr const char* kMultipleChoiceData =
    "one of: GPQA's gpqa_*.csv (Question, Correct Answer, Incorrect Answer 1 to 3); MMLU's "
    "test/SUBJECT_test.csv and dev/SUBJECT_dev.csv (question, A, B, C, D, letter); QuALITY's "
    "*.jsonl "
    "(article, questions with options and gold_label); OpenBookQA's *.jsonl (question with stem "
    "and "
    "choices, answerKey); *.json with samples of prompt and input_label";

// Reads all questions in the files of `data`, a file or directory, in any of these formats. GPQA
// lists the right answer first; its options are shuffled by the seed. Errors: no such file, or
// another format.
Result<std::vector<ChoiceQuestion>> ReadChoiceQuestions(const std::string& data, uint64_t seed);

}  // namespace winnow::eval
