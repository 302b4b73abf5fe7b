#include "tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace winnow::tokenizer {

CharacterStart ClassifyStart(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {.length = 1, .valid = true};
  if (lead < 0xC2 || lead > 0xF4) return {.length = 1};
  const size_t n = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Some lead bytes narrow the range of the second byte, which excludes overlong forms, surrogates
  // and everything above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < n; ++i) {
    if (i == text.size()) return {.length = i, .complete = false};
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < low || byte > high) return {.length = i};
    low = 0x80;
    high = 0xBF;
  }
  return {.length = n, .valid = true};
}

size_t CharacterLength(std::string_view text) {
  if (text.empty()) return 0;
  const CharacterStart start = ClassifyStart(text);
  return start.valid ? start.length : 0;
}

size_t ValidPrefixLength(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is ASCII.
    uint64_t word;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const size_t length = CharacterLength(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return at;
}

bool IsUtf8(std::string_view text) { return ValidPrefixLength(text) == text.size(); }

}  // namespace winnow::tokenizer
