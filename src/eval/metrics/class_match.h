#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow::eval {

// LongBench's classification score: counts the class names that occur in the answer, except proper
// parts of the right name. 1 over that count if the right name is among them, else 0.
double ClassMatch(std::string_view answer, std::string_view reference,
                  std::span<const std::string> classes);

}  // namespace winnow::eval
