#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

// The words between white space (all of Unicode's), as Python's split() gives them.
std::vector<std::string> Words(std::string_view text);
// The pieces between separators; "a,,b" has an empty piece.
std::vector<std::string> Split(std::string_view text, char separator);
std::string Join(const std::vector<std::string>& words, std::string_view separator);
// Removes white space at both ends.
std::string Trimmed(std::string_view text);
std::string Lowercase(std::string_view text);

// SQuAD's normalization: lower case, without ASCII punctuation, without the articles a, an and the,
// words joined by single spaces.
std::string NormalizeAnswer(std::string_view answer);

}  // namespace winnow::eval
