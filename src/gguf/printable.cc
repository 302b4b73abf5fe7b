#include "gguf/printable.h"

#include <algorithm>
#include <cstdint>

namespace winnow::gguf {
namespace {

bool IsPrintable(char c) { return c >= 0x20 && c <= 0x7e; }

void AppendByte(char c, std::string& printable) {
  constexpr char kHex[] = "0123456789abcdef";
  if (IsPrintable(c)) {
    printable += c;
    return;
  }
  const auto byte = static_cast<unsigned char>(c);
  printable += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

// Length of the well-formed non-ASCII UTF-8 character at the start of `text`, or 0; `code` becomes
// its code point.
size_t WideCharacter(std::string_view text, uint32_t& code) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t n = at(0) >= 0xF0 && at(0) < 0xF5   ? 4
                   : at(0) >= 0xE0 && at(0) < 0xF0 ? 3
                   : at(0) >= 0xC2 && at(0) < 0xE0 ? 2
                                                   : 0;
  if (n == 0 || text.size() < n) return 0;
  code = at(0) & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3FU);
  }
  constexpr uint32_t kMin[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < kMin[n] || is_surrogate || code > 0x10FFFF ? 0 : n;
}

bool IsShown(uint32_t code) {
  const bool is_control = code < 0xA0 || code == 0xAD || code == 0xFEFF;
  const bool is_direction = (code >= 0x200B && code <= 0x200F) ||
                            (code >= 0x2028 && code <= 0x202E) ||
                            (code >= 0x2060 && code <= 0x206F);
  const bool is_private = (code >= 0xE000 && code <= 0xF8FF) || code >= 0xE0000;
  return !is_control && !is_direction && !is_private && (code & 0xFFFE) != 0xFFFE;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_length) {
  std::string printable;
  for (const char c : text.substr(0, max_length)) AppendByte(c, printable);
  if (text.size() > max_length) printable += "...";
  return printable;
}

std::string PrintableUtf8(std::string_view text, size_t max_length) {
  std::string printable;
  size_t i = 0;
  while (i < text.size()) {
    uint32_t code = 0;
    const size_t n = WideCharacter(text.substr(i), code);
    if (i + std::max<size_t>(n, 1) > max_length) break;
    if (n > 0 && IsShown(code)) {
      printable += text.substr(i, n);
      i += n;
    } else {
      AppendByte(text[i++], printable);
    }
  }
  if (i < text.size()) printable += "...";
  return printable;
}

bool IsPrintableAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), IsPrintable);
}

}  // namespace winnow::gguf
