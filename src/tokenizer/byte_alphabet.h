#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::tokenizer {

// Byte-level BPE writes every byte as one printable character (the table of GPT-2): printable ASCII
// and Latin-1 stand for themselves, the other 68 bytes for U+0100 and up, in order. Each is one or
// two bytes of UTF-8.
std::string_view CharacterOfByte(uint8_t byte);

// The bytes that a text in this alphabet stands for. Characters outside the alphabet stand for
// themselves.
std::string BytesOfCharacters(std::string_view characters);

}  // namespace winnow::tokenizer
