#include "jinja/unicode.h"

#include <algorithm>
#include <array>

namespace winnow::jinja {
namespace {

struct Interval {
  uint32_t first = 0;
  uint32_t last = 0;
};

template <size_t kSize>
bool In(const std::array<Interval, kSize>& sorted, uint32_t code) {
  const auto after = std::upper_bound(sorted.begin(), sorted.end(), code,
                                      [](uint32_t c, const Interval& i) { return c < i.first; });
  return after != sorted.begin() && code <= (after - 1)->last;
}

// Categories C* and Z* (Unicode 15), except the space. Unassigned characters are not included.
constexpr std::array<Interval, 20> kNotPrintable = {{
    {0x0, 0x1f},      {0x7f, 0xa0},     {0xad, 0xad},     {0x600, 0x605},   {0x61c, 0x61c},
    {0x6dd, 0x6dd},   {0x70f, 0x70f},   {0x890, 0x891},   {0x8e2, 0x8e2},   {0x1680, 0x1680},
    {0x180e, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f}, {0x205f, 0x206f}, {0x3000, 0x3000},
    {0xd800, 0xf8ff}, {0xfeff, 0xfeff}, {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0x10ffff},
}};

// Punctuation, symbols and spaces beyond ASCII, in coarse intervals.
constexpr std::array<Interval, 12> kNotAlpha = {{
    {0x80, 0xa9},
    {0xab, 0xb4},
    {0xb6, 0xb9},
    {0xbb, 0xbf},
    {0xd7, 0xd7},
    {0xf7, 0xf7},
    {0x2000, 0x2070},
    {0x2072, 0x207e},
    {0x2080, 0x208f},
    {0x20a0, 0x20f0},
    {0x2190, 0x2bff},
    {0x3000, 0x3004},
}};

bool IsEven(uint32_t code) { return (code & 1) == 0; }

// Blocks in which upper-case and lower-case letters alternate; the upper-case code is even or odd.
bool CapitalIsEven(uint32_t c) {
  return (c >= 0x100 && c <= 0x137 && c != 0x130 && c != 0x131) || (c >= 0x14a && c <= 0x177) ||
         (c >= 0x1e00 && c <= 0x1e95) || (c >= 0x1ea0 && c <= 0x1eff) ||
         (c >= 0x370 && c <= 0x373) || (c >= 0x3d8 && c <= 0x3ef) || (c >= 0x460 && c <= 0x481) ||
         (c >= 0x48a && c <= 0x4bf) || (c >= 0x4d0 && c <= 0x52f) || (c >= 0x200 && c <= 0x21f) ||
         (c >= 0x222 && c <= 0x233);
}
bool CapitalIsOdd(uint32_t c) {
  return (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e) || (c >= 0x4c1 && c <= 0x4ce) ||
         (c >= 0x1cd && c <= 0x1dc);
}

}  // namespace

Character CharacterAt(std::string_view text, size_t at) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return {kNoCharacter, 1};
  uint32_t code = lead & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {kNoCharacter, 1};
    code = code << 6 | (byte(at + i) & 0x3fU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {kNoCharacter, 1};
  return {code, length};
}

Character CharacterBefore(std::string_view text, size_t end) {
  for (size_t length = 2; length <= 4 && length <= end; ++length) {
    const auto lead = static_cast<unsigned char>(text[end - length]);
    if (lead < 0xc2) continue;
    const Character found = CharacterAt(text.substr(0, end), end - length);
    if (found.bytes == length) return found;
    break;
  }
  return CharacterAt(text.substr(0, end), end - 1);
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) ++count;
  return count;
}

void AppendUtf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

bool IsSpace(uint32_t c) {
  return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

uint32_t ToUpper(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  if (c == kNoCharacter) return c;
  if (c == 0xb5) return 0x39c;
  if (c == 0xff) return 0x178;
  if (c >= 0xe0 && c <= 0xfe && c != 0xf7) return c - 32;
  if (c == 0x131) return 'I';
  if (c == 0x17f) return 'S';
  if (CapitalIsEven(c)) return IsEven(c) ? c : c - 1;
  if (CapitalIsOdd(c)) return IsEven(c) ? c - 1 : c;
  if (c == 0x3ac) return 0x386;
  if (c >= 0x3ad && c <= 0x3af) return c - 37;
  if (c == 0x3c2) return 0x3a3;
  if (c >= 0x3b1 && c <= 0x3cb) return c - 32;
  if (c == 0x3cc) return 0x38c;
  if (c == 0x3cd || c == 0x3ce) return c - 63;
  if (c >= 0x430 && c <= 0x44f) return c - 32;
  if (c >= 0x450 && c <= 0x45f) return c - 80;
  if (c == 0x4cf) return 0x4c0;
  if (c >= 0x561 && c <= 0x586) return c - 48;
  return c;
}

uint32_t ToLower(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == kNoCharacter) return c;
  if (c >= 0xc0 && c <= 0xde && c != 0xd7) return c + 32;
  if (c == 0x178) return 0xff;
  if (CapitalIsEven(c)) return IsEven(c) ? c + 1 : c;
  if (CapitalIsOdd(c)) return IsEven(c) ? c : c + 1;
  if (c == 0x386) return 0x3ac;
  if (c >= 0x388 && c <= 0x38a) return c + 37;
  if (c == 0x38c) return 0x3cc;
  if (c == 0x38e || c == 0x38f) return c + 63;
  if (c >= 0x391 && c <= 0x3ab && c != 0x3a2) return c + 32;
  if (c >= 0x410 && c <= 0x42f) return c + 32;
  if (c >= 0x400 && c <= 0x40f) return c + 80;
  if (c == 0x4c0) return 0x4cf;
  if (c >= 0x531 && c <= 0x556) return c + 48;
  return c;
}

bool IsAlpha(uint32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return c != kNoCharacter && !In(kNotAlpha, c) && IsPrintable(c) && c < 0x1f000;
}

bool IsPrintable(uint32_t c) { return c != kNoCharacter && !In(kNotPrintable, c); }

}  // namespace winnow::jinja
