#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace winnow::gguf {

// Makes text from a file safe to print on one line of a terminal: bytes other than printable ASCII
// become \xNN, and a text of more than `max_length` bytes is cut and ends in "...".
std::string Printable(std::string_view text, size_t max_length = 80);

// The same, but well-formed UTF-8 characters stay, except those that a terminal interprets or does
// not show (controls, zero-width and bidirectional characters, private use, noncharacters). Never
// cuts inside a character.
std::string PrintableUtf8(std::string_view text, size_t max_length = 80);

// Whether all of `text` is printable ASCII (0x20..0x7e).
bool IsPrintableAscii(std::string_view text);

}  // namespace winnow::gguf
