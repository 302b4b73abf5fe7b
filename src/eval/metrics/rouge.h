#pragma once

#include <string_view>

namespace winnow::eval {

// ROUGE-L, F-measure, 0..1, as LongBench and its followers compute it (Python package `rouge`):
// sentences end at every ".", words at white space; the longest common subsequences of every
// reference sentence with all sentences of the answer are united as sets of words, and compared
// with the distinct words of both texts. 0 if either text is empty. Departure: that package fails
// on sentences of about a thousand words, which then score 0; here they are scored.
double RougeL(std::string_view answer, std::string_view reference);

// ROUGE-1, F-measure, 0..1, over words of lower-case ASCII letters and digits (Python package
// `rouge-score`, without its stemmer), as the offline needle tests report it.
double Rouge1(std::string_view answer, std::string_view reference);

}  // namespace winnow::eval
