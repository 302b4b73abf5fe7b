#include <algorithm>
#include <array>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/text_functions.h"
#include "jinja/unicode.h"

// Filters for texts. Other values are converted to text first.
namespace winnow::jinja {
namespace {

Value Trim(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("trim", arguments, {"chars"});
  if (in.failed()) return Value();
  const Text text = in.Str(value);
  if (!given[0] || given[0]->is_none()) return in.Make(Stripped(text, std::nullopt, true, true));
  if (given[0]->text() == nullptr) return in.Fail("trim: expected a text of characters");
  const Text& set = *given[0]->text();
  if (!in.Step(text.size() / 256 * (set.size() / 4 + 1))) return Value();
  return in.Make(Stripped(text, set.view(), true, true));
}

Value Upper(Interpreter& in, const Value& value, const Arguments&) {
  return in.Make(Uppercase(in.Str(value)));
}
Value Lower(Interpreter& in, const Value& value, const Arguments&) {
  return in.Make(Lowercase(in.Str(value)));
}
Value Capitalize(Interpreter& in, const Value& value, const Arguments&) {
  return in.Make(Capitalized(in.Str(value)));
}

// Words begin only after spaces, hyphens and opening brackets, unlike in the method.
Value Title(Interpreter& in, const Value& value, const Arguments&) {
  const Text text = in.Str(value);
  Text out;
  bool at_start = true;
  for (size_t at = 0; at < text.size();) {
    const Character c = CharacterAt(text.view(), at);
    const Text one = text.Slice(at, at + c.bytes);
    out.Append(at_start ? Uppercase(one) : Lowercase(one));
    at_start = IsSpace(c.code) || c.code == '-' || c.code == '(' || c.code == '{' ||
               c.code == '[' || c.code == '<';
    at += c.bytes;
  }
  return in.Make(std::move(out));
}

Value Replace(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("replace", arguments, {"old", "new", "count"}, 2);
  if (in.failed()) return Value();
  const int64_t count = given[2] && given[2]->whole() ? *given[2]->whole() : -1;
  const Text text = in.Str(value);
  const Text old = in.Str(*given[0]);
  const Text by = in.Str(*given[1]);
  return Value(Replaced(in, text, old, by, count));
}

Value Indent(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("indent", arguments, {"width", "first", "blank"});
  if (in.failed()) return Value();
  if (value.text() == nullptr) {
    return in.Fail("indent: a value of type " + std::string(TypeName(value)) + ", expected a text");
  }
  const bool first = given[1] && in.Truth(*given[1]);
  const bool blank = given[2] && in.Truth(*given[2]);
  Text by("    ", true);
  if (given[0] && given[0]->text() != nullptr) {
    by = *given[0]->text();
  } else if (given[0]) {
    if (!given[0]->whole()) return in.Fail("indent: expected a number or a text as width");
    const auto width = static_cast<size_t>(std::clamp<int64_t>(*given[0]->whole(), 0, INT32_MAX));
    if (!in.Charge(width)) return Value();
    by = Text(std::string(width, ' '), true);
  }
  Text text = *value.text();
  text.Append("\n", true);  // so that an empty last line counts
  const std::vector<Text> lines = Lines(text, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!in.Charge(lines[i].size() + by.size() + 1)) return Value();
    if (i > 0) out.Append("\n", true);
    if (i == 0 ? first : blank || !lines[i].empty()) out.Append(by);
    out.Append(lines[i]);
  }
  return Value(std::move(out));
}

Value Escape(Interpreter& in, const Value& value, const Arguments&) {
  static constexpr std::string_view kSpecial = "&<>'\"";
  static constexpr std::array<std::string_view, 5> kNames = {"&amp;", "&lt;", "&gt;", "&#39;",
                                                             "&#34;"};
  const Text text = in.Str(value);
  if (!in.Charge(text.size() * 5)) return Value();
  Text out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.view().find_first_of(kSpecial, at), text.size());
    out.AppendSlice(text, at, next);
    if (next < text.size()) {
      out.Append(kNames[kSpecial.find(text.view()[next])], text.TrustedAt(next));
    }
    at = next + 1;
  }
  return Value(std::move(out));
}

// Percent-encodes all but letters, digits and "_.-~", and "/" outside of queries.
void AppendQuoted(const Text& text, bool for_query, Text* out) {
  for (size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text.view()[at]);
    const bool plain = c < 0x80 && (IsAlpha(c) || IsDigit(c) || c == '_' || c == '.' || c == '-' ||
                                    c == '~' || (c == '/' && !for_query));
    if (plain) {
      out->AppendSlice(text, at, at + 1);
    } else if (for_query && c == ' ') {
      out->Append("+", text.TrustedAt(at));
    } else {
      const char escaped[] = {'%', "0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
      out->Append(std::string_view(escaped, 3), text.TrustedAt(at));
    }
  }
}

Value UrlEncode(Interpreter& in, const Value& value, const Arguments&) {
  Text out;
  const bool listed = value.dict() != nullptr || value.sequence() != nullptr;
  if (!listed) {
    const Text text = in.Str(value);
    if (in.Charge(text.size() * 3)) AppendQuoted(text, false, &out);
    return Value(std::move(out));
  }
  const auto pairs =
      in.Iterate(value.dict() != nullptr ? in.CallFilter("items", value, {}) : value);
  if (!pairs) return Value();
  for (size_t i = 0; i < pairs->size(); ++i) {
    const auto pair = in.Iterate((*pairs)[i]);
    if (!pair) return Value();
    if (pair->size() != 2) return in.Fail("urlencode: expected pairs of a name and a value");
    const Text name = in.Str((*pair)[0]);
    const Text text = in.Str((*pair)[1]);
    if (!in.Charge((name.size() + text.size()) * 3)) return Value();
    if (i > 0) out.Append("&", true);
    AppendQuoted(name, true, &out);
    out.Append("=", true);
    AppendQuoted(text, true, &out);
  }
  return Value(std::move(out));
}

Value WordCount(Interpreter& in, const Value& value, const Arguments&) {
  const Text text = in.Str(value);
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text.view(), at).bytes) {
    const uint32_t c = CharacterAt(text.view(), at).code;
    const bool word = IsAlpha(c) || IsDigit(c) || c == '_';
    count += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value(count);
}

Value Format(Interpreter& in, const Value& value, const Arguments& arguments) {
  if (!arguments.values.empty() && !arguments.keywords.empty()) {
    return in.Fail("format: positional and keyword arguments at the same time");
  }
  const Text format = in.Str(value);
  if (arguments.keywords.empty()) {
    return PercentFormat(in, format, in.MakeSequence(SequenceKind::kTuple, arguments.values));
  }
  Dict* dict = in.heap().NewDict();
  for (const auto& [name, argument] : arguments.keywords) dict->Set(Text(name, true), argument);
  return PercentFormat(in, format, Value(dict));
}

Value Center(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("center", arguments, {"width"});
  if (in.failed()) return Value();
  const Value text = in.Make(in.Str(value));
  return in.Call(in.FindMethod(text, "center"), {{given[0] ? *given[0] : Value(int64_t{80})}, {}});
}

Value Truncate(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (in.failed()) return Value();
  const auto size = in.Length(value);
  if (!size) return Value();
  const Text end = given[2] ? in.Str(*given[2]) : Text("...", true);
  const int64_t length = given[0] && given[0]->whole() ? *given[0]->whole() : 255;
  const int64_t leeway = given[3] && given[3]->whole() ? *given[3]->whole() : 5;
  const auto n_end = static_cast<int64_t>(CountCharacters(end.view()));
  if (length < n_end || leeway < 0 || length > INT32_MAX || leeway > INT32_MAX) {
    return in.Fail("truncate: expected a length of at least the end's, and a leeway from 0");
  }
  if (static_cast<int64_t>(*size) <= length + leeway) return value;
  if (value.text() == nullptr) {
    return in.Fail("truncate: a value of type " + std::string(TypeName(value)) +
                   ", expected a text");
  }
  const Value cut = in.Slice(value, Value(), Value(length - n_end), Value());
  if (in.failed()) return Value();
  Text out = *cut.text();
  if (!given[1] || !in.Truth(*given[1])) {
    const size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out = out.Slice(0, space);
  }
  out.Append(end);
  return in.Make(std::move(out));
}

constexpr std::array<NamedNative, 15> kTextFilters = {{
    {"trim", &Trim},
    {"upper", &Upper},
    {"lower", &Lower},
    {"capitalize", &Capitalize},
    {"title", &Title},
    {"replace", &Replace},
    {"indent", &Indent},
    {"escape", &Escape},
    {"e", &Escape},
    {"forceescape", &Escape},
    {"urlencode", &UrlEncode},
    {"wordcount", &WordCount},
    {"format", &Format},
    {"center", &Center},
    {"truncate", &Truncate},
}};

}  // namespace

Native FindTextFilter(std::string_view name) { return FindIn(kTextFilters, name); }

}  // namespace winnow::jinja
