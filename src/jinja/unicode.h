#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Characters as in Python's str. A byte that is not valid UTF-8 counts as one character.
namespace winnow::jinja {

struct Character {
  uint32_t code = 0;  // kNoCharacter for an invalid byte
  size_t bytes = 1;
};
inline constexpr uint32_t kNoCharacter = 0xffffffff;

// The character that begins at text[at]. Requires: at < text.size().
Character CharacterAt(std::string_view text, size_t at);
// The character that ends before text[end]. Requires: 0 < end <= text.size().
Character CharacterBefore(std::string_view text, size_t end);
size_t CountCharacters(std::string_view text);
void AppendUtf8(std::string& out, uint32_t code);

// As str.isspace, str.upper and str.lower for single characters. Case is known for Latin, Greek,
// Cyrillic and Armenian letters; others are unchanged. ToUpper of sharp s is sharp s.
bool IsSpace(uint32_t code);
uint32_t ToUpper(uint32_t code);
uint32_t ToLower(uint32_t code);
// Includes lower-case letters without a single upper-case character: ß, ª, º, ĸ, ŉ, ǰ.
inline bool IsCased(uint32_t code) {
  return ToUpper(code) != code || ToLower(code) != code || code == 0xdf || code == 0xaa ||
         code == 0xba || code == 0x138 || code == 0x149 || code == 0x1f0;
}
inline bool IsDigit(uint32_t code) { return code >= '0' && code <= '9'; }
bool IsAlpha(uint32_t code);  // beyond ASCII: all but spaces, punctuation and symbols
// Whether repr() prints it without an escape.
bool IsPrintable(uint32_t code);

}  // namespace winnow::jinja
