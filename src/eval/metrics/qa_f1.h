#pragma once

#include <span>
#include <string>
#include <string_view>

// How near an answer comes to one of the right ones, by its words. [SQuAD; LongBench qa_f1_score]
namespace winnow::eval {

// 2 * shared / (words of both), of the multisets of words after NormalizeAnswer; 0..1.
double QaF1(std::string_view answer, std::string_view reference);
// The same of two lists of words as they are.
double WordsF1(std::span<const std::string> answer, std::span<const std::string> reference);
// 1 if both are the same after NormalizeAnswer.
double ExactMatch(std::string_view answer, std::string_view reference);

// The largest over several references; 0 without any.
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
