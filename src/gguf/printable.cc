#include "gguf/printable.h"

#include <algorithm>

namespace winnow::gguf {
namespace {

bool IsPrintable(char c) { return c >= 0x20 && c <= 0x7e; }

}  // namespace

std::string Printable(std::string_view text, size_t max_length) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string printable;
  for (const char c : text.substr(0, max_length)) {
    if (IsPrintable(c)) {
      printable += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      printable += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (text.size() > max_length) printable += "...";
  return printable;
}

bool IsPrintableAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), IsPrintable);
}

}  // namespace winnow::gguf
