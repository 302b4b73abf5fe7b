#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "jinja/interpreter.h"
#include "jinja/text.h"

// Python's functions on str. The trust of every byte is preserved.
namespace winnow::jinja {

// Removes characters of `set` (nullopt: white space) from the ends.
Text Stripped(const Text& text, std::optional<std::string_view> set, bool left, bool right);
Text Uppercase(const Text& text);
Text Lowercase(const Text& text);
Text Capitalized(const Text& text);
// str.title: capitalizes every letter after a non-letter.
Text Titled(const Text& text);
// Replaces at most `count` occurrences, all if it is negative. Charges what it makes.
Text Replaced(Interpreter& in, const Text& text, const Text& old, const Text& by, int64_t count);
std::vector<Text> Lines(const Text& text, bool keep_ends);
// `separator` nullopt: splits at white space.
std::vector<Text> SplitText(const Text& text, const std::optional<Text>& separator,
                            int64_t max_splits);
std::vector<Text> SplitTextFromRight(const Text& text, const std::optional<Text>& separator,
                                     int64_t max_splits);

}  // namespace winnow::jinja
