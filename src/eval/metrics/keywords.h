#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::eval {

// The share of `texts` that the answer contains, ignoring case, 0..1; 0 if there are no texts.
// [RULER: string_match_all]
double FoundFraction(std::string_view answer, std::span<const std::string> texts);

// Whether the answer contains `text`, ignoring case, but not as part of a longer word or number:
// 70467 is not in 704672, nor in 70467.5.
bool HasWhole(std::string_view answer, std::string_view text);

// The share of the needle's words that the answer contains as words, ignoring case. Common short
// words (articles, forms of "to be", prepositions, ...) and words of the question do not count. 0
// if no word is left.
double KeyWordShare(std::string_view answer, std::string_view needle,
                    std::string_view question = "");

}  // namespace winnow::eval
