#pragma once

#include <algorithm>
#include <ranges>

namespace winnow {

// Whether a sequence, such as the tokens of a text, begins with all of another.
template <std::ranges::sized_range Whole, std::ranges::sized_range Beginning>
bool BeginsWith(const Whole& whole, const Beginning& beginning) {
  return std::ranges::size(whole) >= std::ranges::size(beginning) &&
         std::equal(std::ranges::begin(beginning), std::ranges::end(beginning),
                    std::ranges::begin(whole));
}

}  // namespace winnow
