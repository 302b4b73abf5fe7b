#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace winnow::gguf {

// Text from a file made safe to print on one line of a terminal: bytes other than printable ASCII
// become \xNN, and after `max_length` bytes of `text` it ends in "...".
std::string Printable(std::string_view text, size_t max_length = 80);

// The same, but characters of well-formed UTF-8 stay as they are, except those that a terminal
// obeys or does not show (controls, directions of writing, unassigned ends of planes). Not cut
// inside a character.
std::string PrintableUtf8(std::string_view text, size_t max_length = 80);

// Whether all of `text` is printable ASCII (0x20..0x7e).
bool IsPrintableAscii(std::string_view text);

}  // namespace winnow::gguf
