#include <algorithm>
#include <array>

#include "jinja/interpreter.h"
#include "jinja/unicode.h"

// Methods of str that search or test it.
namespace winnow::jinja {
namespace {

// Bytes [begin, end) of a text, from arguments that count characters as slices do.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  size_t first_character = 0;
  bool valid = true;  // false: it begins after the end of the text
};

Part FindPart(Interpreter& in, const Text& text, const std::optional<Value>& from,
              const std::optional<Value>& to) {
  const auto n = static_cast<int64_t>(CountCharacters(text.view()));
  const auto place = [&](const std::optional<Value>& at, int64_t otherwise) {
    if (!at || at->is_none()) return otherwise;
    if (!at->whole()) {
      in.Fail("slice indices must be integers or None");
      return otherwise;
    }
    return *at->whole() < 0 ? std::max<int64_t>(*at->whole() + n, 0) : *at->whole();
  };
  const int64_t first = place(from, 0);
  const int64_t last = std::min(place(to, n), n);
  Part out;
  out.valid = first <= last && first <= n;
  if (!out.valid) return out;
  size_t byte = 0;
  for (int64_t i = 0; i < last; ++i) {
    if (i == first) out.begin = byte;
    byte += CharacterAt(text.view(), byte).bytes;
  }
  if (first == last) out.begin = byte;
  out.end = byte;
  out.first_character = static_cast<size_t>(first);
  return out;
}

// startswith, endswith: the argument is a text or a tuple of texts.
Value Matches(Interpreter& in, const Value& self, const Arguments& arguments, bool at_end) {
  const auto given =
      in.Bind(at_end ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}, 1);
  if (in.failed()) return Value();
  std::vector<Value> wanted = {*given[0]};
  if (const Sequence* tuple = given[0]->sequence();
      tuple != nullptr && tuple->kind == SequenceKind::kTuple) {
    wanted = tuple->items;
  }
  const Part part = FindPart(in, *self.text(), given[1], given[2]);
  const std::string_view text = self.text()->view().substr(part.begin, part.end - part.begin);
  bool found = false;
  for (const Value& value : wanted) {
    if (value.text() == nullptr) {
      return in.Fail("startswith, endswith: expected a text or a tuple of texts, found " +
                     std::string(TypeName(value)));
    }
    const std::string_view what = value.text()->view();
    found = found || (part.valid && (at_end ? text.ends_with(what) : text.starts_with(what)));
  }
  return Value(found);
}
Value StartsWith(Interpreter& in, const Value& self, const Arguments& a) {
  return Matches(in, self, a, false);
}
Value EndsWith(Interpreter& in, const Value& self, const Arguments& a) {
  return Matches(in, self, a, true);
}

// The character index at which `sub` is found; nullopt: not found.
std::optional<int64_t> Found(Interpreter& in, const Value& self, const Arguments& arguments,
                             bool from_right) {
  const auto given = in.Bind("find", arguments, {"sub", "start", "end"}, 1);
  if (in.failed()) return std::nullopt;
  if (given[0]->text() == nullptr) {
    in.Fail("find: expected a text, found " + std::string(TypeName(*given[0])));
    return std::nullopt;
  }
  const Part part = FindPart(in, *self.text(), given[1], given[2]);
  if (!part.valid) return std::nullopt;
  const std::string_view text = self.text()->view().substr(part.begin, part.end - part.begin);
  const std::string_view what = given[0]->text()->view();
  if (from_right && !in.Step(text.size() / 256 * (what.size() / 16 + 1))) return std::nullopt;
  const size_t at = from_right ? text.rfind(what) : FindBytes(text, what, 0);
  if (at == std::string_view::npos) return std::nullopt;
  return static_cast<int64_t>(part.first_character + CountCharacters(text.substr(0, at)));
}
Value Find(Interpreter& in, const Value& self, const Arguments& a) {
  return Value(Found(in, self, a, false).value_or(-1));
}
Value RFind(Interpreter& in, const Value& self, const Arguments& a) {
  return Value(Found(in, self, a, true).value_or(-1));
}
Value Index(Interpreter& in, const Value& self, const Arguments& a) {
  const auto at = Found(in, self, a, false);
  return at ? Value(*at) : in.Fail("index: the text was not found");
}
Value RIndex(Interpreter& in, const Value& self, const Arguments& a) {
  const auto at = Found(in, self, a, true);
  return at ? Value(*at) : in.Fail("rindex: the text was not found");
}

Value Count(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("count", arguments, {"sub", "start", "end"}, 1);
  if (in.failed()) return Value();
  if (given[0]->text() == nullptr) return in.Fail("count: expected a text");
  const Part part = FindPart(in, *self.text(), given[1], given[2]);
  if (!part.valid) return Value(int64_t{0});
  const std::string_view text = self.text()->view().substr(part.begin, part.end - part.begin);
  const std::string_view what = given[0]->text()->view();
  if (what.empty()) return Value(static_cast<int64_t>(CountCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = FindBytes(text, what, 0); at != std::string_view::npos;
       at = FindBytes(text, what, at + what.size())) {
    ++count;
  }
  return Value(count);
}

// Whether there are characters and all satisfy `is`.
template <typename Function>
Value All(const Value& self, const Function& is) {
  const std::string_view text = self.text()->view();
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) {
    if (!is(CharacterAt(text, at).code)) return Value(false);
  }
  return Value(!text.empty());
}
Value IsDigits(Interpreter&, const Value& self, const Arguments&) { return All(self, &IsDigit); }
Value IsLetters(Interpreter&, const Value& self, const Arguments&) { return All(self, &IsAlpha); }
Value IsAlnum(Interpreter&, const Value& self, const Arguments&) {
  return All(self, [](uint32_t c) { return IsAlpha(c) || IsDigit(c); });
}
Value IsSpaces(Interpreter&, const Value& self, const Arguments&) { return All(self, &IsSpace); }
Value IsAscii(Interpreter&, const Value& self, const Arguments&) {
  return Value(self.text()->is_ascii());
}
// Whether there are cased letters and all have this case.
bool HasCase(const Value& self, bool upper) {
  const std::string_view text = self.text()->view();
  bool any = false;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).bytes) {
    const uint32_t c = CharacterAt(text, at).code;
    if (!IsCased(c) && c != 0xdf) continue;
    any = true;
    if ((upper ? ToLower(c) == c : ToUpper(c) == c && c != 0xdf)) return false;
  }
  return any;
}
Value IsUpper(Interpreter&, const Value& self, const Arguments&) {
  return Value(HasCase(self, true));
}
Value IsLower(Interpreter&, const Value& self, const Arguments&) {
  return Value(HasCase(self, false));
}

constexpr std::array<NamedNative, 16> kTextQuestions = {{
    {"startswith", &StartsWith},
    {"endswith", &EndsWith},
    {"find", &Find},
    {"rfind", &RFind},
    {"index", &Index},
    {"rindex", &RIndex},
    {"count", &Count},
    {"isdigit", &IsDigits},
    {"isdecimal", &IsDigits},
    {"isnumeric", &IsDigits},
    {"isalpha", &IsLetters},
    {"isalnum", &IsAlnum},
    {"isspace", &IsSpaces},
    {"isascii", &IsAscii},
    {"isupper", &IsUpper},
    {"islower", &IsLower},
}};

}  // namespace

Native FindTextTest(std::string_view name) { return FindIn(kTextQuestions, name); }

}  // namespace winnow::jinja
