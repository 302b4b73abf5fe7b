#pragma once

#include <string>
#include <string_view>

namespace winnow::eval {

// The share of the whole numbers in the answer that equal `number`; 0 if there are none.
// [LongBench: count_score, retrieval_score]
double NumberMatch(std::string_view answer, std::string_view number);

// The number n of "Paragraph n"; empty if there is none.
std::string ParagraphNumber(std::string_view reference);

// The first whole number in the text, without leading zeros; empty if there is none.
std::string FirstNumber(std::string_view text);

}  // namespace winnow::eval
