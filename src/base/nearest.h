#pragma once

#include <span>
#include <string_view>

namespace winnow {

// The candidate fewest edits away from `word` (swapped neighbours count as one), if that is near
// enough to be a slip of the fingers; otherwise empty. Case is no difference.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace winnow
