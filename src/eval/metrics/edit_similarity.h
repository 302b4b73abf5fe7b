#pragma once

#include <string>
#include <string_view>

namespace winnow::eval {

// 2 * matches / (characters of both), where matches is the length of a longest common subsequence
// in characters; rounded to a hundredth, 0..1. [LongBench code_sim_score: fuzzywuzzy's ratio]
double EditSimilarity(std::string_view a, std::string_view b);

// The line of a completion that LongBench scores: the first one, after leading line feeds, without
// a back-tick, '#' or "//"; empty if there is none.
std::string FirstCodeLine(std::string_view completion);

}  // namespace winnow::eval
