#pragma once

#include <span>
#include <string_view>

namespace winnow {

// The candidate with the smallest edit distance to `word` (a swap of neighbours is one edit), for
// "did you mean" messages; empty if none is close enough to be a typing error. Ignores case.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace winnow
