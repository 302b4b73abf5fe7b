#pragma once

#include <string>
#include <string_view>

// Extracts answers from texts about mathematics and checks them.
namespace winnow::eval {

// GSM8K: the number after "####", without "$", "," and a final full stop; empty if there is none.
std::string NumberAfterHashes(std::string_view text);
// The last number of the text, in the same form; empty if there is none.
std::string LastNumber(std::string_view text);

// TheoremQA: the rest of the line after the last "answer is" (or "answer:"), else the last line.
std::string FinalAnswer(std::string_view text);
// Whether `answer` contains the value `reference`, which has TheoremQA's type `type`: "bool",
// "option", "integer", "float" or a list of numbers. Numbers may be 4 % off, as in its scorer;
// integers must be equal.
bool SameMathAnswer(std::string_view answer, std::string_view reference, std::string_view type);

}  // namespace winnow::eval
