#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "jinja/interpreter.h"

namespace winnow::jinja {
namespace {

constexpr const char* kTooLarge = "a number beyond 64 bits";

Value Power(Interpreter& in, const Value& a, const Value& b) {
  const auto base = a.whole();
  const auto exponent = b.whole();
  if (base && exponent && *exponent >= 0) {
    int64_t result = 1;
    if (*base == 0 || *base == 1) return Value(*exponent == 0 ? int64_t{1} : *base);
    if (*base == -1) return Value(*exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
    for (int64_t i = 0; i < *exponent; ++i) {
      if (__builtin_mul_overflow(result, *base, &result)) return in.Fail(kTooLarge);
    }
    return Value(result);
  }
  if (*a.number() == 0 && *b.number() < 0) {
    return in.Fail("zero cannot be raised to a negative power");
  }
  const double result = std::pow(*a.number(), *b.number());
  if (std::isnan(result) && !std::isnan(*a.number())) {
    return in.Fail("a negative number cannot be raised to a fraction");
  }
  return Value(result);
}

Value OnIntegers(Interpreter& in, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else {
    if (b == 0) return in.Fail("division by zero");
    if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
      if (op == "%") return Value(int64_t{0});
      overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      // Rounded down as in Python, not toward zero.
      const int64_t rest = a % b;
      const bool below = rest != 0 && (rest < 0) != (b < 0);
      result = op == "//" ? a / b - (below ? 1 : 0) : rest + (below ? b : 0);
    }
  }
  return overflow ? in.Fail(kTooLarge) : Value(result);
}

Value OnReals(Interpreter& in, std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (b == 0) return in.Fail("division by zero");
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return Value(rest);
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value(quotient - whole > 0.5 ? whole + 1 : whole);
}

// A text or list repeated n times.
Value Repeated(Interpreter& in, const Value& value, int64_t n) {
  const auto times = static_cast<size_t>(std::max<int64_t>(n, 0));
  const Text* text = value.text();
  const size_t size =
      text != nullptr ? text->size() : value.sequence()->items.size() * sizeof(Value);
  if (size != 0 && times > std::numeric_limits<size_t>::max() / size) {
    return in.Fail("a text or list is repeated too often");
  }
  // Charged before it is made.
  if (!in.Charge(size * times) || !in.Step(size == 0 ? 0 : times / 64)) return Value();
  if (text != nullptr) {
    if (size == 0 || times == 0) return Value(Text());
    // Short texts in blocks, because a repeated character may be a gigabyte.
    Text block;
    const size_t per_block = std::clamp<size_t>(4096 / size, 1, times);
    for (size_t i = 0; i < per_block; ++i) block.Append(*text);
    Text out;
    for (size_t i = 0; i < times / per_block; ++i) out.Append(block);
    for (size_t i = 0; i < times % per_block; ++i) out.Append(*text);
    return Value(std::move(out));
  }
  const Sequence& sequence = *value.sequence();
  std::vector<Value> items;
  for (size_t i = 0; size != 0 && i < times; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return in.MakeSequence(sequence.kind, std::move(items));
}

bool IsListOrTuple(const Value& value) {
  return value.sequence() != nullptr && (value.sequence()->kind == SequenceKind::kList ||
                                         value.sequence()->kind == SequenceKind::kTuple);
}

}  // namespace

Value Interpreter::Operate(std::string_view op, const Value& a, const Value& b) {
  const Text* left = a.text();
  const Text* right = b.text();
  if (op == "%" && left != nullptr) return PercentFormat(*this, *left, b);
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) return Fail(*v->undefined().why);
  }
  if (op == "+" && left != nullptr && right != nullptr) {
    if (!Charge(left->size() + right->size())) return Value();
    Text out = *left;
    out.Append(*right);
    return Value(std::move(out));
  }
  if (op == "+" && IsListOrTuple(a) && IsListOrTuple(b) &&
      a.sequence()->kind == b.sequence()->kind) {
    std::vector<Value> items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return MakeSequence(a.sequence()->kind, std::move(items));
  }
  if (op == "*") {
    if ((left != nullptr || IsListOrTuple(a)) && b.whole()) return Repeated(*this, a, *b.whole());
    if ((right != nullptr || IsListOrTuple(b)) && a.whole()) return Repeated(*this, b, *a.whole());
  }
  if (a.number() && b.number()) {
    if (op == "**") return Power(*this, a, b);
    if (a.whole() && b.whole()) return OnIntegers(*this, op, *a.whole(), *b.whole());
    return OnReals(*this, op, *a.number(), *b.number());
  }
  return Fail("unsupported operand types for " + std::string(op) + ": '" +
              std::string(TypeName(a)) + "' and '" + std::string(TypeName(b)) + "'");
}

size_t FindBytes(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  if (text.size() - from < what.size()) return std::string_view::npos;
  // Knuth-Morris-Pratt for long patterns. Short ones are found as fast without it.
  if (what.size() <= 16) return text.find(what, from);
  std::vector<size_t> border(what.size() + 1, 0);
  for (size_t i = 1, k = 0; i < what.size(); ++i) {
    while (k > 0 && what[i] != what[k]) k = border[k];
    if (what[i] == what[k]) ++k;
    border[i + 1] = k;
  }
  for (size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != what[k]) k = border[k];
    if (text[i] == what[k]) ++k;
    if (k == what.size()) return i + 1 - k;
  }
  return std::string_view::npos;
}

}  // namespace winnow::jinja
