#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "jinja/interpreter.h"

// Filters for values of any kind, and the lookup of filters by name.
namespace winnow::jinja {
namespace {

std::string Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n\v\f\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n\v\f\r") + 1 - begin));
}

// Allows single underscores between digits, as in Python.
std::optional<std::string> WithoutUnderscores(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() &&
                         std::isalnum(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1])) != 0;
    if (!between) return std::nullopt;
  }
  return out;
}

std::optional<double> RealIn(std::string_view text) {
  const auto digits = WithoutUnderscores(Stripped(text));
  if (!digits || digits->empty()) return std::nullopt;
  if (digits->find_first_of("xXpP(") != std::string::npos)
    return std::nullopt;  // C's syntax, not Python's
  char* end = nullptr;
  const double real = std::strtod(digits->c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return real;
}

std::optional<int64_t> WholeIn(std::string_view text, int64_t base) {
  auto digits = WithoutUnderscores(Stripped(text));
  if (!digits || digits->empty() || base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  const auto prefixed = [&](char letter) {
    return rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == letter;
  };
  for (const auto& [letter, of] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if ((base == of || base == 0) && prefixed(letter)) {
      rest.remove_prefix(2);
      base = of;
      break;
    }
  }
  if (base == 0) base = 10;
  uint64_t size = 0;
  const auto parsed =
      std::from_chars(rest.data(), rest.data() + rest.size(), size, static_cast<int>(base));
  if (rest.empty() || parsed.ec != std::errc() || parsed.ptr != rest.data() + rest.size() ||
      size > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
}

std::optional<int64_t> Truncated(double real) {
  if (!(std::abs(real) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(real);
}

Value Default(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("default", arguments, {"default_value", "boolean"});
  if (in.failed()) return Value();
  const bool by_truth = given[1] && in.Truth(*given[1]);
  if (!value.is_undefined() && !(by_truth && !in.Truth(value))) return value;
  return given[0] ? *given[0] : in.MakeText("", true);
}

Value ToInt(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("int", arguments, {"default", "base"});
  if (in.failed()) return Value();
  const Value otherwise = given[0] ? *given[0] : Value(int64_t{0});
  if (const auto whole = value.whole()) return Value(*whole);
  std::optional<double> real = value.number();
  if (const Text* text = value.text()) {
    const int64_t base = given[1] && given[1]->whole() ? *given[1]->whole() : 10;
    if (const auto whole = WholeIn(text->view(), base)) return Value(*whole);
    real = RealIn(text->view());
  }
  if (value.is_undefined()) return in.Fail(*value.undefined().why);
  const auto whole = real ? Truncated(*real) : std::nullopt;
  return whole ? Value(*whole) : otherwise;
}

Value ToFloat(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("float", arguments, {"default"});
  if (in.failed()) return Value();
  if (value.is_undefined()) return in.Fail(*value.undefined().why);
  std::optional<double> real = value.number();
  if (const Text* text = value.text()) real = RealIn(text->view());
  return real ? Value(*real) : given[0] ? *given[0] : Value(0.0);
}

Value Abs(Interpreter& in, const Value& value, const Arguments&) {
  if (const auto whole = value.whole()) {
    return *whole < 0 ? in.Operate("-", Value(int64_t{0}), Value(*whole)) : Value(*whole);
  }
  if (value.number()) return Value(std::abs(*value.number()));
  return in.Fail("abs of a value of type " + std::string(TypeName(value)));
}

// Rounds exact decimal digits to nearest, half to even, as Python's round() does.
double RoundedTo(double value, int64_t digits) {
  if (digits > 300 || !std::isfinite(value)) return value;
  if (digits < -308) return 0 * value;
  if (digits >= 0) {
    std::array<char, 700> buffer;
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
    return std::strtod(buffer.data(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Value Round(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("round", arguments, {"precision", "method"});
  if (in.failed()) return Value();
  if (!value.number()) return in.Fail("round of a value of type " + std::string(TypeName(value)));
  const int64_t digits = given[0] && given[0]->whole() ? *given[0]->whole() : 0;
  const Text* method = given[1] ? given[1]->text() : nullptr;
  const std::string_view how = given[1] ? (method != nullptr ? method->view() : "?") : "common";
  if (how == "common") {
    if (const auto whole = value.whole(); whole && (digits >= 0 || *whole == 0))
      return Value(*whole);
    if (value.whole()) return Value(static_cast<int64_t>(RoundedTo(*value.number(), digits)));
    return Value(RoundedTo(*value.real(), digits));
  }
  if (how != "ceil" && how != "floor") {
    return in.Fail("round: expected method common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = *value.number() * scale;
  return Value((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value ToString(Interpreter& in, const Value& value, const Arguments&) {
  return in.Make(in.Str(value));
}

Value LengthFilter(Interpreter& in, const Value& value, const Arguments&) {
  const auto length = in.Length(value);
  return length ? Value(static_cast<int64_t>(*length)) : Value();
}

// Has the signature of Hugging Face transformers.
Value ToJson(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given =
      in.Bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (in.failed()) return Value();
  Interpreter::JsonStyle style;
  style.ensure_ascii = given[0] && in.Truth(*given[0]);
  style.sort_keys = given[3] && in.Truth(*given[3]);
  if (given[1] && !given[1]->is_none()) {
    if (const Text* text = given[1]->text()) {
      style.indent = text->bytes();
    } else if (const auto spaces = given[1]->whole()) {
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(*spaces, 0, 100)), ' ');
    } else {
      return in.Fail("tojson: indent is a " + std::string(TypeName(*given[1])) +
                     ", expected a number");
    }
    style.between_items = ",";
  }
  if (given[2] && !given[2]->is_none()) {
    const auto parts = in.Iterate(*given[2]);
    if (!parts) return Value();
    if (parts->size() != 2 || (*parts)[0].text() == nullptr || (*parts)[1].text() == nullptr) {
      return in.Fail("tojson: expected two texts as separators");
    }
    style.between_items = (*parts)[0].text()->bytes();
    style.after_key = (*parts)[1].text()->bytes();
  }
  Text out;
  in.Json(value, style, 0, &out);
  return in.Make(std::move(out));
}

Value AttributeByName(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("attr", arguments, {"name"}, 1);
  if (in.failed()) return Value();
  const Text* name = given[0]->text();
  if (name == nullptr) return in.Fail("attr: expected a name");
  if (value.object() != nullptr) return value.object()->Attribute(in, name->view());
  Value method = in.FindMethod(value, name->view());
  return method.is_undefined() ? in.Nothing("no attribute '" + name->bytes() + "'") : method;
}

constexpr std::array<NamedNative, 12> kFilters = {{
    {"default", &Default},
    {"d", &Default},
    {"int", &ToInt},
    {"float", &ToFloat},
    {"abs", &Abs},
    {"round", &Round},
    {"string", &ToString},
    {"length", &LengthFilter},
    {"count", &LengthFilter},
    {"tojson", &ToJson},
    {"attr", &AttributeByName},
    {"safe", &ToString},
}};

}  // namespace

Native FindIn(std::span<const NamedNative> table, std::string_view name) {
  for (const NamedNative& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

Native FindFilter(std::string_view name) {
  if (const Native found = FindIn(kFilters, name)) return found;
  if (const Native found = FindTextFilter(name)) return found;
  return FindListFilter(name);
}

Value Interpreter::CallFilter(std::string_view name, const Value& value,
                              const Arguments& arguments) {
  const Level level(*this);
  if (!level || !Step()) return Value();
  const Native filter = FindFilter(name);
  if (filter == nullptr) return Fail("no filter named '" + std::string(name) + "'");
  return filter(*this, value, arguments);
}

Value IgnoringCase(Interpreter& in, const Value& value) {
  return value.text() == nullptr ? value : in.CallFilter("lower", value, {});
}

Value AttributePath(Interpreter& in, const Value& value, const Value& path) {
  if (path.text() == nullptr) return in.Item(value, path);
  Value at = value;
  std::string_view rest = path.text()->view();
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    at = in.Item(at, number ? Value(int64_t{std::atoll(std::string(part).c_str())})
                            : in.MakeText(part, true));
    if (in.failed() || part.size() == rest.size()) return at;
    rest.remove_prefix(part.size() + 1);
  }
}

}  // namespace winnow::jinja
