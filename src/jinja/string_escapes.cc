#include "jinja/string_escapes.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "jinja/unicode.h"

namespace winnow::jinja {
namespace {

std::optional<uint32_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The value of n hexadecimal digits at the beginning of `text`.
std::optional<uint32_t> HexNumber(std::string_view text, size_t n) {
  if (text.size() < n) return std::nullopt;
  uint32_t number = 0;
  for (const char c : text.substr(0, n)) {
    const auto digit = HexDigit(c);
    if (!digit) return std::nullopt;
    number = number << 4 | *digit;
  }
  return number;
}

bool IsSurrogate(uint32_t code) { return code >= 0xd800 && code <= 0xdfff; }

}  // namespace

Result<std::string> Unescape(std::string_view text) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeant = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char letter = text[++i];
    if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
      out += kMeant[known];
    } else if (letter == '\n') {
      // A line continuation.
    } else if (letter >= '0' && letter <= '7') {
      uint32_t code = 0;
      const size_t end = std::min(i + 3, text.size());
      for (; i < end && text[i] >= '0' && text[i] <= '7'; ++i) code = code << 3 | (text[i] - '0');
      --i;
      AppendUtf8(out, code);
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const size_t n = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      auto code = HexNumber(text.substr(i + 1), n);
      if (!code || *code > 0x10ffff) {
        return Error{std::string("the escape \\") + letter + " is not followed by " +
                     std::to_string(n) + " hexadecimal digits of a character"};
      }
      i += n;
      // Python would keep a lone surrogate, but UTF-8 cannot encode it.
      if (IsSurrogate(*code)) return Error{"an escape of a surrogate, which is not a character"};
      AppendUtf8(out, *code);
    } else if (letter == 'N') {
      return Error{"the escape \\N{...} is not supported: write \\u and the code"};
    } else {
      out += '\\';
      out += letter;
    }
  }
  return out;
}

}  // namespace winnow::jinja
