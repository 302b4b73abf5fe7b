#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::tokenizer {

// Byte-level BPE writes each byte as one printable character (GPT-2's table): printable ASCII and
// Latin-1 map to themselves, the other 68 bytes to U+0100 and up, in order. Each character has one
// or two bytes of UTF-8.
std::string_view CharacterOfByte(uint8_t byte);

// The inverse: the bytes of a text in this alphabet. Characters outside the alphabet are copied.
std::string BytesOfCharacters(std::string_view characters);

}  // namespace winnow::tokenizer
