#pragma once

#include <span>
#include <string>
#include <string_view>

// The similarity of an answer to a reference, by words. [SQuAD; LongBench qa_f1_score]
namespace winnow::eval {

// 2 * shared / (words of both), over the multisets of words after NormalizeAnswer; 0..1.
double QaF1(std::string_view answer, std::string_view reference);
// The same for two lists of words as they are.
double WordsF1(std::span<const std::string> answer, std::span<const std::string> reference);
// 1 if both are the same after NormalizeAnswer, else 0.
double ExactMatch(std::string_view answer, std::string_view reference);

// The maximum over several references; 0 if there are none.
template <typename Metric>
double MaxOverReferences(Metric metric, std::string_view answer,
                         std::span<const std::string> references) {
  double best = 0;
  for (const std::string& reference : references) {
    const double value = metric(answer, reference);
    if (value > best) best = value;
  }
  return best;
}

}  // namespace winnow::eval
