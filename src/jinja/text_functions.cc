#include "jinja/text_functions.h"

#include <algorithm>

#include "jinja/unicode.h"

namespace winnow::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool InSet(std::string_view text, size_t at, Character c, std::optional<std::string_view> set) {
  if (!set) return IsSpace(c.code);
  const std::string_view bytes = text.substr(at, c.bytes);
  for (size_t i = 0; i < set->size(); i += CharacterAt(*set, i).bytes) {
    if (set->substr(i, CharacterAt(*set, i).bytes) == bytes) return true;
  }
  return false;
}

// Appends a character in another case. Sharp s becomes two letters.
void AppendMapped(const Text& text, size_t at, Character c, uint32_t mapped, bool upper,
                  Text* out) {
  const bool trusted = text.TrustedAt(at);
  if (upper && c.code == 0xdf) return out->Append("SS", trusted);
  if (c.code == kNoCharacter || mapped == c.code) return out->AppendSlice(text, at, at + c.bytes);
  std::string bytes;
  AppendUtf8(bytes, mapped);
  out->Append(bytes, trusted);
}

template <typename Function>  // (code, index of the character) -> code
Text Mapped(const Text& text, bool upper, const Function& function) {
  Text out;
  size_t index = 0;
  for (size_t at = 0; at < text.size(); ++index) {
    const Character c = CharacterAt(text.view(), at);
    AppendMapped(text, at, c, function(c.code, index), upper, &out);
    at += c.bytes;
  }
  return out;
}

bool IsLineEnd(uint32_t c) {
  return (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

size_t SkipSpaces(std::string_view text, size_t at) {
  while (at < text.size() && IsSpace(CharacterAt(text, at).code)) at += CharacterAt(text, at).bytes;
  return at;
}

}  // namespace

Text Stripped(const Text& text, std::optional<std::string_view> set, bool left, bool right) {
  const std::string_view all = text.view();
  size_t begin = 0;
  size_t end = all.size();
  while (left && begin < end) {
    const Character c = CharacterAt(all, begin);
    if (!InSet(all, begin, c, set)) break;
    begin += c.bytes;
  }
  while (right && begin < end) {
    const Character c = CharacterBefore(all, end);
    if (!InSet(all, end - c.bytes, c, set)) break;
    end -= c.bytes;
  }
  return text.Slice(begin, std::max(begin, end));
}

Text Uppercase(const Text& text) {
  return Mapped(text, true, [](uint32_t c, size_t) { return ToUpper(c); });
}

Text Lowercase(const Text& text) {
  return Mapped(text, false, [](uint32_t c, size_t) { return ToLower(c); });
}

Text Capitalized(const Text& text) {
  return Mapped(text, false, [](uint32_t c, size_t i) { return i == 0 ? ToUpper(c) : ToLower(c); });
}

Text Titled(const Text& text) {
  bool in_word = false;
  return Mapped(text, false, [&](uint32_t c, size_t) {
    const bool first = !in_word;
    in_word = IsCased(c);
    return first ? ToUpper(c) : ToLower(c);
  });
}

Text Replaced(Interpreter& in, const Text& text, const Text& old, const Text& by, int64_t count) {
  Text out;
  size_t at = 0;
  if (old.empty()) {  // before every character and at the end
    for (; count != 0 && at <= text.size(); --count) {
      if (!in.Charge(by.size() + 1)) return out;
      out.Append(by);
      if (at == text.size()) return out;
      const size_t bytes = CharacterAt(text.view(), at).bytes;
      out.AppendSlice(text, at, at + bytes);
      at += bytes;
    }
  }
  for (; count != 0; --count) {
    const size_t found = old.empty() ? kNowhere : FindBytes(text.view(), old.view(), at);
    if (found == kNowhere) break;
    if (!in.Charge(by.size() + found - at)) return out;
    out.AppendSlice(text, at, found);
    out.Append(by);
    at = found + old.size();
  }
  if (in.Charge(text.size() - at)) out.AppendSlice(text, at, text.size());
  return out;
}

std::vector<Text> Lines(const Text& text, bool keep_ends) {
  std::vector<Text> out;
  const std::string_view all = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < all.size();) {
    const Character c = CharacterAt(all, at);
    if (!IsLineEnd(c.code)) {
      at += c.bytes;
      continue;
    }
    const size_t next = at + (all.substr(at, 2) == "\r\n" ? 2 : c.bytes);
    out.push_back(text.Slice(begin, keep_ends ? next : at));
    begin = at = next;
  }
  if (begin < all.size()) out.push_back(text.Slice(begin, all.size()));
  return out;
}

std::vector<Text> SplitText(const Text& text, const std::optional<Text>& separator,
                            int64_t max_splits) {
  std::vector<Text> out;
  const std::string_view all = text.view();
  size_t at = 0;
  if (separator) {
    for (; max_splits != 0; --max_splits) {
      const size_t found = FindBytes(all, separator->view(), at);
      if (found == kNowhere) break;
      out.push_back(text.Slice(at, found));
      at = found + separator->size();
    }
    out.push_back(text.Slice(at, all.size()));
    return out;
  }
  for (at = SkipSpaces(all, 0); at < all.size(); at = SkipSpaces(all, at)) {
    if (max_splits-- == 0) {
      out.push_back(text.Slice(at, all.size()));
      return out;
    }
    size_t end = at;
    while (end < all.size() && !IsSpace(CharacterAt(all, end).code)) {
      end += CharacterAt(all, end).bytes;
    }
    out.push_back(text.Slice(at, end));
    at = end;
  }
  return out;
}

std::vector<Text> SplitTextFromRight(const Text& text, const std::optional<Text>& separator,
                                     int64_t max_splits) {
  std::vector<Text> out;
  std::string_view rest = text.view();
  if (separator) {
    for (; max_splits != 0; --max_splits) {
      const size_t found = rest.rfind(separator->view());
      if (found == kNowhere) break;
      out.push_back(text.Slice(found + separator->size(), rest.size()));
      rest = rest.substr(0, found);
    }
    out.push_back(text.Slice(0, rest.size()));
  } else {
    for (;;) {
      while (!rest.empty() && IsSpace(CharacterBefore(rest, rest.size()).code)) {
        rest.remove_suffix(CharacterBefore(rest, rest.size()).bytes);
      }
      if (rest.empty()) break;
      if (max_splits-- == 0) {
        out.push_back(text.Slice(0, rest.size()));
        break;
      }
      size_t begin = rest.size();
      while (begin > 0 && !IsSpace(CharacterBefore(rest, begin).code)) {
        begin -= CharacterBefore(rest, begin).bytes;
      }
      out.push_back(text.Slice(begin, rest.size()));
      rest = rest.substr(0, begin);
    }
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace winnow::jinja
