#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::eval {

// The share of `texts` that the answer contains, in any case, 0..1; 0 without any. [RULER:
// string_match_all]
double FoundFraction(std::string_view answer, std::span<const std::string> texts);

// Whether the answer has `text` in it, in any case, and not as a part of a longer word or number:
// 70467 is not in 704672, nor in 70467.5.
bool HasWhole(std::string_view answer, std::string_view text);

// The share of the needle's words that the answer contains as words, in any case. Short and common
// ones (articles, forms of "to be", prepositions, ...) do not count, nor what the question says
// already. 0 if nothing is left.
double KeyWordShare(std::string_view answer, std::string_view needle,
                    std::string_view question = "");

}  // namespace winnow::eval
