#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/unicode.h"

// Python's two ways of formatting: "%s is %d" % values, "{} is {:.2f}".format(values).
namespace winnow::jinja {
namespace {

// The part between % and its letter, or after the colon in braces.
struct Spec {
  char fill = ' ';
  char align = 0;  // one of < > ^ =; 0: the default of the value's type
  bool plus = false;
  bool space = false;
  bool alternative = false;  // #
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

constexpr int64_t kMaxWidth = 10'000;
constexpr int64_t kMaxPrecision = 100;

std::string Fixed(double value, char type, int64_t precision) {
  std::array<char, 512> buffer;
  const std::string format = std::string("%.*") + type;
  std::snprintf(buffer.data(), buffer.size(), format.c_str(), static_cast<int>(precision), value);
  return buffer.data();
}

std::string InBase(uint64_t value, int base, bool upper) {
  std::array<char, 66> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, base);
  std::string out(buffer.data(), end.ptr);
  if (upper) {
    for (char& c : out) c = static_cast<char>(ToUpper(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string WithThousands(const std::string& digits) {
  const size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(end);
}

// Sign and digits of a number. Fails if the format type cannot show the value.
Text NumberText(Interpreter& in, const Value& value, const Spec& spec) {
  std::string digits;
  bool negative = false;
  const char type = spec.type == 0 ? (value.whole() ? 'd' : 'g') : spec.type;
  const bool whole_type = type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' ||
                          type == 'o' || type == 'b';
  if (!value.number()) {
    in.Fail(std::string("format: %") + type + " needs a number, found " +
            std::string(TypeName(value)));
    return {};
  }
  if (whole_type) {
    const double real = value.number().value_or(0);
    if (!value.whole() && !(std::abs(real) < 9.2e18)) {
      in.Fail("format: the number is beyond 64 bits");
      return {};
    }
    const int64_t whole = value.whole() ? *value.whole() : static_cast<int64_t>(real);
    negative = whole < 0;
    const uint64_t size =
        negative ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
    const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    digits = InBase(size, base, type == 'X');
    if (spec.alternative && base != 10) digits = std::string("0") + type + digits;
  } else {
    const double real = *value.number();
    negative = std::signbit(real) && !std::isnan(real);
    const double size = std::abs(real);
    if (spec.type == 0 && spec.precision < 0) {
      digits = ShowFloat(size);
    } else if (type == '%') {
      digits = Fixed(size * 100, 'f', spec.precision < 0 ? 6 : spec.precision) + "%";
    } else {
      digits = Fixed(size, type, spec.precision < 0 ? 6 : spec.precision);
    }
  }
  if (spec.thousands) digits = WithThousands(digits);
  const std::string sign = negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  const auto length = static_cast<int64_t>(sign.size() + digits.size());
  if (spec.align == '=' && length < spec.width) {
    digits.insert(0, static_cast<size_t>(spec.width - length), spec.fill);
  }
  return Text(sign + digits, false);
}

void AppendPadded(Interpreter& in, const Text& text, const Spec& spec, char otherwise, Text* out) {
  const auto missing = spec.width - static_cast<int64_t>(CountCharacters(text.view()));
  if (!in.Charge(text.size() + static_cast<size_t>(std::max<int64_t>(missing, 0)))) return;
  const char align = spec.align == 0 ? otherwise : spec.align;
  const int64_t before = missing <= 0 || align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&](int64_t n) {
    if (n > 0) out->Append(std::string(static_cast<size_t>(n), spec.fill), true);
  };
  fill(before);
  out->Append(text);
  fill(missing - before);
}

Text FirstCharacters(const Text& text, int64_t n) {
  size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += CharacterAt(text.view(), at).bytes;
  return text.Slice(0, at);
}

// Parses the number at text[*at] and moves *at behind it; -1 if there is none.
int64_t NumberAt(std::string_view text, size_t* at) {
  int64_t number = -1;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = std::min<int64_t>(std::max<int64_t>(number, 0) * 10 + (text[*at] - '0'), 1'000'000);
  }
  return number;
}

bool InLimits(Interpreter& in, const Spec& spec) {
  if (spec.width <= kMaxWidth && spec.precision <= kMaxPrecision) return true;
  in.Fail("format: expected a width up to " + std::to_string(kMaxWidth) +
          " and a precision up to " + std::to_string(kMaxPrecision));
  return false;
}

Spec BraceSpec(Interpreter& in, std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (text.size() > 1 && is_align(text[1]) && static_cast<unsigned char>(text[0]) < 0x80) {
    spec.fill = text[0];
    spec.align = text[1];
    at = 2;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto skip = [&](char c) {
    return at < text.size() && text[at] == c ? (++at, true) : false;
  };
  spec.plus = skip('+');
  if (!spec.plus && !skip('-')) spec.space = skip(' ');
  spec.alternative = skip('#');
  if (skip('0') && spec.align == 0) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = std::max<int64_t>(NumberAt(text, &at), 0);
  spec.thousands = skip(',');
  if (skip('.')) spec.precision = NumberAt(text, &at);
  if (at < text.size()) spec.type = text[at++];
  static constexpr std::string_view kTypes = "sdxXobeEfFgGn%";
  if (at != text.size() || (spec.type != 0 && kTypes.find(spec.type) == std::string_view::npos)) {
    in.Fail("format: '" + std::string(text.substr(0, 40)) + "' is not a supported format");
  }
  return spec;
}

void AppendBraced(Interpreter& in, const Value& value, char conversion, std::string_view format,
                  Text* out) {
  if (conversion == 0 && value.number() && !format.empty() &&
      (value.boolean() == nullptr || format.back() != 's')) {
    const Spec spec = BraceSpec(in, format);
    if (in.failed() || !InLimits(in, spec)) return;
    if (spec.type == 's') return (void)in.Fail("format: 's' for a number");
    return AppendPadded(in, NumberText(in, value, spec), spec, '>', out);
  }
  Text text;
  if (conversion == 'r' || conversion == 'a') {
    in.Repr(value, &text);
  } else {
    text = in.Str(value);
  }
  const Spec spec = BraceSpec(in, format);
  if (in.failed() || !InLimits(in, spec)) return;
  if (spec.type != 0 && spec.type != 's') {
    return (void)in.Fail(std::string("format: '") + spec.type + "' for a value of type " +
                         std::string(TypeName(value)));
  }
  if (spec.precision >= 0) text = FirstCharacters(text, spec.precision);
  AppendPadded(in, text, spec, '<', out);
}

}  // namespace

Value PercentFormat(Interpreter& in, const Text& format, const Value& values) {
  const std::string_view text = format.view();
  const Sequence* tuple = values.sequence();
  if (tuple != nullptr && tuple->kind != SequenceKind::kTuple) tuple = nullptr;
  size_t n_used = 0;
  bool by_name = false;
  Text out;
  const auto next = [&]() -> Value {
    const size_t n = tuple != nullptr ? tuple->items.size() : 1;
    if (n_used >= n) return in.Fail("format: not enough arguments for the format");
    return tuple != nullptr ? tuple->items[n_used++] : (++n_used, values);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    if (!in.Charge(percent - at + 1)) return Value();
    out.AppendSlice(format, at, percent);
    at = percent + 1;
    if (percent == text.size()) break;
    if (at == text.size()) return in.Fail("format: '%' at the end of the format");
    Value value;
    bool named = false;
    if (text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) return in.Fail("format: '(' without ')'");
      if (values.dict() == nullptr) return in.Fail("format: names need a dict");
      const Value* found = values.dict()->Find(text.substr(at + 1, close - at - 1));
      if (found == nullptr) return in.Fail("format: a name that is not in the dict");
      value = *found;
      named = by_name = true;
      at = close + 1;
    }
    Spec spec;
    for (; at < text.size(); ++at) {
      if (text[at] == '-') {
        spec.align = '<';
      } else if (text[at] == '0') {
        spec.fill = '0';
      } else if (text[at] == '+') {
        spec.plus = true;
      } else if (text[at] == ' ') {
        spec.space = true;
      } else if (text[at] == '#') {
        spec.alternative = true;
      } else {
        break;
      }
    }
    spec.width = std::max<int64_t>(NumberAt(text, &at), 0);
    if (at < text.size() && text[at] == '.')
      spec.precision = std::max<int64_t>(NumberAt(text, &++at), 0);
    if (at == text.size()) return in.Fail("format: the format ends within '%...'");
    if (!InLimits(in, spec)) return Value();
    spec.type = text[at++];
    if (spec.type == '%') {
      out.Append("%", format.TrustedAt(at - 1));
      continue;
    }
    if (!named) value = next();
    if (in.failed()) return Value();
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'a') {
      Text shown;
      if (spec.type == 's') {
        shown = in.Str(value);
      } else {
        in.Repr(value, &shown);
      }
      spec.fill = ' ';
      if (spec.precision >= 0) shown = FirstCharacters(shown, spec.precision);
      AppendPadded(in, shown, spec, '>', &out);
    } else if (std::string_view("diuxXoeEfFgG").find(spec.type) != std::string_view::npos) {
      if (spec.fill == '0') {
        if (spec.align == '<') {
          spec.fill = ' ';
        } else {
          spec.align = '=';
        }
      }
      AppendPadded(in, NumberText(in, value, spec), spec, '>', &out);
    } else {
      return in.Fail(std::string("format: '%") + spec.type + "' is not supported");
    }
    if (in.failed()) return Value();
  }
  if (!by_name && tuple != nullptr && n_used < tuple->items.size()) {
    return in.Fail("format: not all arguments were used by the format");
  }
  if (!by_name && tuple == nullptr && n_used == 0 && values.dict() == nullptr &&
      !values.is_undefined() && values.sequence() == nullptr) {
    return in.Fail("format: not all arguments were used by the format");
  }
  return Value(std::move(out));
}

Value BraceFormat(Interpreter& in, const Text& format, const Arguments& arguments) {
  const std::string_view text = format.view();
  size_t n_used = 0;
  Text out;
  for (size_t at = 0; at < text.size();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    if (!in.Charge(brace - at + 1)) return Value();
    out.AppendSlice(format, at, brace);
    if (brace == text.size()) break;
    at = brace + 1;
    if (at < text.size() && text[at] == text[brace]) {
      out.AppendSlice(format, brace, at);
      ++at;
      continue;
    }
    const size_t close = text.find('}', at);
    if (text[brace] == '}' || close == std::string_view::npos) {
      return in.Fail("format: a single '" + std::string(1, text[brace]) + "'");
    }
    const std::string_view field = text.substr(at, close - at);
    at = close + 1;
    const size_t end = std::min(field.find_first_of("!:"), field.size());
    std::string_view name = field.substr(0, end);
    const bool converts = end < field.size() && field[end] == '!';
    const char conversion = converts && end + 1 < field.size() ? field[end + 1] : '\0';
    const size_t colon = field.find(':', end);
    const std::string_view spec =
        colon == std::string_view::npos ? std::string_view() : field.substr(colon + 1);
    if (spec.find('{') != std::string_view::npos) {
      return in.Fail("format: braces within braces are not supported");
    }
    const std::string_view first = name.substr(0, name.find_first_of(".["));
    Value value;
    size_t digits = 0;
    const int64_t number = NumberAt(first, &digits);
    if (first.empty() || digits == first.size()) {
      const size_t index = first.empty() ? n_used++ : static_cast<size_t>(number);
      if (index >= arguments.values.size()) return in.Fail("format: not enough arguments");
      value = arguments.values[index];
    } else {
      bool found = false;
      for (const auto& [keyword, argument] : arguments.keywords) {
        if (keyword != first) continue;
        value = argument;
        found = true;
      }
      if (!found) return in.Fail("format: no argument '" + std::string(first) + "'");
    }
    for (name.remove_prefix(first.size()); !name.empty();) {
      const bool item = name[0] == '[';
      name.remove_prefix(1);
      const std::string_view part =
          name.substr(0, item ? name.find(']') : name.find_first_of(".["));
      size_t part_digits = 0;
      const int64_t index = NumberAt(part, &part_digits);
      value = item ? in.Item(value, part_digits == part.size() && !part.empty()
                                        ? Value(index)
                                        : in.MakeText(part, true))
                   : in.Attribute(value, part);
      if (in.failed() || !in.Step()) return Value();
      name.remove_prefix(std::min(name.size(), part.size() + (item ? 1 : 0)));
    }
    AppendBraced(in, value, conversion, spec, &out);
    if (in.failed()) return Value();
  }
  return Value(std::move(out));
}

}  // namespace winnow::jinja
