#pragma once

#include <cstddef>
#include <string_view>

namespace winnow::tokenizer {

// Bytes of the well-formed UTF-8 character at the start of `text` (RFC 3629: no surrogates, no
// overlong forms, nothing above U+10FFFF); 0 if there is none.
size_t CharacterLength(std::string_view text);

// Classifies the start of `text` as UTF-8, for decoding a stream. Requires: `text` is not empty.
//   complete and valid: `length` bytes are a character
//   not valid:          `length` bytes (at least 1) can never become a character: a maximal subpart
//                       (Unicode standard, section 3.9), to be replaced by one U+FFFD
//   not complete:       all of `text` is the beginning of a character that is not complete yet
struct CharacterStart {
  size_t length = 0;
  bool valid = false;
  bool complete = true;
};
CharacterStart ClassifyStart(std::string_view text);

bool IsUtf8(std::string_view text);

// Length of the longest prefix of `text` that is valid UTF-8.
size_t ValidPrefixLength(std::string_view text);

}  // namespace winnow::tokenizer
