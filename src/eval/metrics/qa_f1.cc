#include "eval/metrics/qa_f1.h"

#include <map>

#include "eval/metrics/normalise.h"

namespace winnow::eval {

double WordsF1(std::span<const std::string> answer, std::span<const std::string> reference) {
  std::map<std::string, int> left;
  for (const std::string& word : reference) ++left[word];
  int n_shared = 0;
  for (const std::string& word : answer) {
    if (left[word] > 0) {
      --left[word];
      ++n_shared;
    }
  }
  if (n_shared == 0) return 0;
  return 2.0 * n_shared / static_cast<double>(answer.size() + reference.size());
}

double QaF1(std::string_view answer, std::string_view reference) {
  return WordsF1(Words(NormalizeAnswer(answer)), Words(NormalizeAnswer(reference)));
}

double ExactMatch(std::string_view answer, std::string_view reference) {
  return NormalizeAnswer(answer) == NormalizeAnswer(reference) ? 1 : 0;
}

}  // namespace winnow::eval
