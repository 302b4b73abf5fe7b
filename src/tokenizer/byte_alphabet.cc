#include "tokenizer/byte_alphabet.h"

#include <algorithm>
#include <array>

#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

constexpr bool IsPrintedAsIs(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  struct Character {
    char bytes[2] = {};
    uint8_t length = 0;
  };
  std::array<Character, 256> of_byte = {};
  std::array<int16_t, 0x200> byte_of = {};  // by code point; -1: not in the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte_of) byte = -1;
  int next_other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = IsPrintedAsIs(byte) ? byte : next_other++;
    alphabet.byte_of[code] = static_cast<int16_t>(byte);
    auto& character = alphabet.of_byte[byte];
    if (code < 0x80) {
      character = {.bytes = {static_cast<char>(code)}, .length = 1};
    } else {
      character = {
          .bytes = {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))},
          .length = 2};
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::string_view CharacterOfByte(uint8_t byte) {
  const auto& character = kAlphabet.of_byte[byte];
  return {character.bytes, character.length};
}

std::string BytesOfCharacters(std::string_view characters) {
  std::string bytes;
  while (!characters.empty()) {
    const size_t length = std::max<size_t>(1, CharacterLength(characters));
    int byte = -1;
    if (length == 1) {
      byte = kAlphabet.byte_of[static_cast<uint8_t>(characters[0])];
    } else if (length == 2) {
      const int code = (characters[0] & 0x1F) << 6 | (characters[1] & 0x3F);
      if (code < static_cast<int>(kAlphabet.byte_of.size())) byte = kAlphabet.byte_of[code];
    }
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      bytes += characters.substr(0, length);
    }
    characters.remove_prefix(length);
  }
  return bytes;
}

}  // namespace winnow::tokenizer
