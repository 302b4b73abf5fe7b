#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/unicode.h"

namespace winnow::jinja {
namespace {

void AppendHex(uint32_t code, int digits, std::string* out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    *out += "0123456789abcdef"[code >> shift & 0xf];
  }
}

// A text as Python's repr() shows it.
void ReprText(const Text& text, Text* out) {
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const char quote = has_single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
  out->Append(std::string_view(&quote, 1), false);
  for (size_t at = 0; at < text.size();) {
    const Character c = CharacterAt(text.view(), at);
    std::string escaped;
    if (c.code == static_cast<uint32_t>(quote) || c.code == '\\') {
      escaped = {'\\', static_cast<char>(c.code)};
    } else if (c.code == '\n') {
      escaped = "\\n";
    } else if (c.code == '\r') {
      escaped = "\\r";
    } else if (c.code == '\t') {
      escaped = "\\t";
    } else if (c.code != kNoCharacter && !IsPrintable(c.code)) {
      const int digits = c.code < 0x100 ? 2 : c.code < 0x10000 ? 4 : 8;
      escaped = digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      AppendHex(c.code, digits, &escaped);
    }
    if (escaped.empty()) {
      out->AppendSlice(text, at, at + c.bytes);
    } else {
      out->Append(escaped, false);
    }
    at += c.bytes;
  }
  out->Append(std::string_view(&quote, 1), false);
}

void JsonText(const Text& text, bool ensure_ascii, Text* out) {
  out->Append("\"", false);
  for (size_t at = 0; at < text.size();) {
    const Character c = CharacterAt(text.view(), at);
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetters = "\"\\nrtfb";
    std::string escaped;
    const size_t known = c.code < 0x80 ? kShort.find(static_cast<char>(c.code)) : std::string::npos;
    if (known != std::string_view::npos) {
      escaped = {'\\', kLetters[known]};
    } else if (c.code < 0x20 || (ensure_ascii && c.code >= 0x7f && c.code < 0x10000)) {
      escaped = "\\u";
      AppendHex(c.code, 4, &escaped);
    } else if (ensure_ascii && c.code >= 0x10000 && c.code != kNoCharacter) {
      escaped = "\\u";
      AppendHex(0xd800 + ((c.code - 0x10000) >> 10), 4, &escaped);
      escaped += "\\u";
      AppendHex(0xdc00 + ((c.code - 0x10000) & 0x3ff), 4, &escaped);
    }
    if (escaped.empty()) {
      out->AppendSlice(text, at, at + c.bytes);
    } else {
      out->Append(escaped, false);
    }
    at += c.bytes;
  }
  out->Append("\"", false);
}

}  // namespace

std::string ShowFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    const std::string sign = exponent < 0 ? "-" : "+";
    const int size = std::abs(exponent);
    return text.substr(0, e) + "e" + sign + (size < 10 ? "0" : "") + std::to_string(size);
  }
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = text[0] == '-' ? "-" : "";
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  const std::string fraction = digits.substr(whole);
  return out + digits.substr(0, whole) + "." + (fraction.empty() ? "0" : fraction);
}

Text Interpreter::Str(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return {};
  Text out;
  Repr(value, &out);
  return out;
}

void Interpreter::Repr(const Value& value, Text* out) {
  const Level level(*this);
  if (!level || !Step()) return;
  const auto word = [&](std::string_view text) { out->Append(text, false); };
  if (value.is_none()) {
    word("None");
  } else if (value.is_undefined()) {
    word("Undefined");
  } else if (const bool* boolean = value.boolean()) {
    word(*boolean ? "True" : "False");
  } else if (const int64_t* integer = value.integer()) {
    word(std::to_string(*integer));
  } else if (const double* real = value.real()) {
    word(ShowFloat(*real));
  } else if (const Text* text = value.text()) {
    if (Charge(text->size())) ReprText(*text, out);
  } else if (const Dict* dict = value.dict()) {
    word("{");
    for (size_t i = 0; i < dict->entries.size() && !failed(); ++i) {
      if (i > 0) word(", ");
      Repr(dict->entries[i].key, out);
      word(": ");
      Repr(dict->entries[i].value, out);
    }
    word("}");
  } else if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind == SequenceKind::kRange) return word("range(" + sequence->name + ")");
    if (sequence->kind == SequenceKind::kGenerator) return word("<generator object>");
    const bool tuple = sequence->kind == SequenceKind::kTuple;
    const bool view = sequence->kind == SequenceKind::kView;
    word(view ? sequence->name + "([" : tuple ? "(" : "[");
    for (size_t i = 0; i < sequence->items.size() && !failed(); ++i) {
      if (i > 0) word(", ");
      Repr(sequence->items[i], out);
    }
    if (tuple && sequence->items.size() == 1) word(",");
    word(view ? "])" : tuple ? ")" : "]");
  } else {
    word(value.object()->Repr());
  }
}

void Interpreter::Json(const Value& value, const JsonStyle& style, int depth, Text* out) {
  const Level level(*this);
  if (!level || !Step()) return;
  const auto word = [&](std::string_view text) { out->Append(text, false); };
  const auto new_line = [&](int at) {
    if (!style.indent || !Charge(style.indent->size() * static_cast<size_t>(at))) return;
    word("\n");
    for (int i = 0; i < at; ++i) word(*style.indent);
  };
  const auto number = [](double real) -> std::string {
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return ShowFloat(real);
  };
  if (value.is_none()) return word("null");
  if (const bool* boolean = value.boolean()) return word(*boolean ? "true" : "false");
  if (const int64_t* integer = value.integer()) return word(std::to_string(*integer));
  if (const double* real = value.real()) return word(number(*real));
  if (const Text* text = value.text()) {
    if (Charge(text->size())) JsonText(*text, style.ensure_ascii, out);
    return;
  }
  if (const Dict* dict = value.dict()) {
    std::vector<Dict::Entry> entries = dict->entries;
    if (style.sort_keys) {
      std::vector<Value> places;
      std::vector<Value> keys;
      for (size_t i = 0; i < entries.size(); ++i) {
        places.emplace_back(static_cast<int64_t>(i));
        keys.push_back(entries[i].key);
      }
      places = Sorted(*this, std::move(places), keys, false);
      if (failed()) return;
      for (size_t i = 0; i < places.size(); ++i) {
        entries[i] = dict->entries[static_cast<size_t>(*places[i].integer())];
      }
    }
    word("{");
    for (size_t i = 0; i < entries.size() && !failed(); ++i) {
      if (i > 0) word(style.between_items);
      new_line(depth + 1);
      const Value& key = entries[i].key;
      Text name = Str(key);
      if (key.boolean() != nullptr) name = Text(*key.boolean() ? "true" : "false", false);
      if (key.is_none()) name = Text("null", false);
      if (key.real() != nullptr) name = Text(number(*key.real()), false);
      if (key.text() == nullptr && !key.number() && !key.is_none()) {
        Fail("tojson: a key of type " + std::string(TypeName(key)) + ", expected a text");
      }
      JsonText(name, style.ensure_ascii, out);
      word(style.after_key);
      Json(entries[i].value, style, depth + 1, out);
    }
    if (!entries.empty()) new_line(depth);
    return word("}");
  }
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr &&
      (sequence->kind == SequenceKind::kList || sequence->kind == SequenceKind::kTuple)) {
    word("[");
    for (size_t i = 0; i < sequence->items.size() && !failed(); ++i) {
      if (i > 0) word(style.between_items);
      new_line(depth + 1);
      Json(sequence->items[i], style, depth + 1, out);
    }
    if (!sequence->items.empty()) new_line(depth);
    return word("]");
  }
  Fail("tojson: a value of type " + std::string(TypeName(value)) + " cannot be written as JSON" +
       (value.is_undefined() ? " (" + *value.undefined().why + ")" : ""));
}

}  // namespace winnow::jinja
