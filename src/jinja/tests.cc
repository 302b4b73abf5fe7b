#include <algorithm>
#include <array>

#include "jinja/interpreter.h"

// The tests that can follow `is`.
namespace winnow::jinja {
namespace {

using Test = bool (*)(Interpreter& in, const Value& value, const Value& argument);

bool Odd(Interpreter& in, const Value& value, const Value&) {
  const Value rest = in.Operate("%", value, Value(int64_t{2}));
  return !in.failed() && in.Equal(rest, Value(int64_t{1}));
}
bool Even(Interpreter& in, const Value& value, const Value&) {
  const Value rest = in.Operate("%", value, Value(int64_t{2}));
  return !in.failed() && in.Equal(rest, Value(int64_t{0}));
}
bool DivisibleBy(Interpreter& in, const Value& value, const Value& by) {
  const Value rest = in.Operate("%", value, by);
  return !in.failed() && in.Equal(rest, Value(int64_t{0}));
}
bool Defined(Interpreter&, const Value& value, const Value&) { return !value.is_undefined(); }
bool IsUndefined(Interpreter&, const Value& value, const Value&) { return value.is_undefined(); }
bool IsNone(Interpreter&, const Value& value, const Value&) { return value.is_none(); }
bool Boolean(Interpreter&, const Value& value, const Value&) { return value.boolean() != nullptr; }
bool True(Interpreter&, const Value& value, const Value&) {
  return value.boolean() != nullptr && *value.boolean();
}
bool False(Interpreter&, const Value& value, const Value&) {
  return value.boolean() != nullptr && !*value.boolean();
}
bool Integer(Interpreter&, const Value& value, const Value&) { return value.integer() != nullptr; }
bool Float(Interpreter&, const Value& value, const Value&) { return value.real() != nullptr; }
bool Number(Interpreter&, const Value& value, const Value&) { return value.number().has_value(); }
bool String(Interpreter&, const Value& value, const Value&) { return value.text() != nullptr; }
bool Mapping(Interpreter&, const Value& value, const Value&) { return value.dict() != nullptr; }
bool IsSequence(Interpreter&, const Value& value, const Value&) {
  const Sequence* sequence = value.sequence();
  return value.text() != nullptr || value.dict() != nullptr || value.is_undefined() ||
         (sequence != nullptr && sequence->kind != SequenceKind::kGenerator &&
          sequence->kind != SequenceKind::kView);
}
bool Iterable(Interpreter&, const Value& value, const Value&) {
  return value.text() != nullptr || value.dict() != nullptr || value.sequence() != nullptr ||
         value.is_undefined();
}
bool Callable(Interpreter&, const Value& value, const Value&) {
  return value.is_undefined() || (value.object() != nullptr && value.object()->callable());
}
bool CaseIs(Interpreter& in, const Value& value, const char* method) {
  const Value text = in.Make(in.Str(value));
  return in.Truth(in.Call(in.FindMethod(text, method), {}));
}
bool Lower(Interpreter& in, const Value& value, const Value&) {
  return CaseIs(in, value, "islower");
}
bool Upper(Interpreter& in, const Value& value, const Value&) {
  return CaseIs(in, value, "isupper");
}
bool Escaped(Interpreter&, const Value&, const Value&) { return false; }
bool SameAs(Interpreter&, const Value& value, const Value& other) { return value.Is(other); }
bool In(Interpreter& in, const Value& value, const Value& other) {
  return in.Contains(other, value);
}
bool Equal(Interpreter& in, const Value& a, const Value& b) { return in.Compare("==", a, b); }
bool NotEqual(Interpreter& in, const Value& a, const Value& b) { return in.Compare("!=", a, b); }
bool Less(Interpreter& in, const Value& a, const Value& b) { return in.Compare("<", a, b); }
bool AtMost(Interpreter& in, const Value& a, const Value& b) { return in.Compare("<=", a, b); }
bool Greater(Interpreter& in, const Value& a, const Value& b) { return in.Compare(">", a, b); }
bool AtLeast(Interpreter& in, const Value& a, const Value& b) { return in.Compare(">=", a, b); }
bool KnownFilter(Interpreter& in, const Value& value, const Value&) {
  return FindFilter(in.Str(value).view()) != nullptr;
}
bool KnownTest(Interpreter& in, const Value& value, const Value&) {
  return IsKnownTest(in.Str(value).view());
}

struct NamedTest {
  std::string_view name;
  Test test = nullptr;
  bool takes_argument = false;
};
constexpr std::array<NamedTest, 39> kTests = {{
    {"odd", &Odd},
    {"even", &Even},
    {"divisibleby", &DivisibleBy, true},
    {"defined", &Defined},
    {"undefined", &IsUndefined},
    {"filter", &KnownFilter},
    {"test", &KnownTest},
    {"none", &IsNone},
    {"boolean", &Boolean},
    {"true", &True},
    {"false", &False},
    {"integer", &Integer},
    {"float", &Float},
    {"number", &Number},
    {"string", &String},
    {"mapping", &Mapping},
    {"sequence", &IsSequence},
    {"iterable", &Iterable},
    {"callable", &Callable},
    {"lower", &Lower},
    {"upper", &Upper},
    {"escaped", &Escaped},
    {"sameas", &SameAs, true},
    {"in", &In, true},
    {"==", &Equal, true},
    {"eq", &Equal, true},
    {"equalto", &Equal, true},
    {"!=", &NotEqual, true},
    {"ne", &NotEqual, true},
    {"<", &Less, true},
    {"lt", &Less, true},
    {"lessthan", &Less, true},
    {"<=", &AtMost, true},
    {"le", &AtMost, true},
    {">", &Greater, true},
    {"gt", &Greater, true},
    {"greaterthan", &Greater, true},
    {">=", &AtLeast, true},
    {"ge", &AtLeast, true},
}};

const NamedTest* FindTest(std::string_view name) {
  const auto found = std::find_if(kTests.begin(), kTests.end(),
                                  [name](const NamedTest& test) { return test.name == name; });
  return found == kTests.end() ? nullptr : found;
}

}  // namespace

bool IsKnownTest(std::string_view name) { return FindTest(name) != nullptr; }

bool Interpreter::CallTest(std::string_view name, const Value& value, const Arguments& arguments) {
  const Level level(*this);
  if (!level || !Step()) return false;
  const NamedTest* test = FindTest(name);
  if (test == nullptr) {
    Fail("no test named '" + std::string(name) + "'");
    return false;
  }
  const size_t n_expected = test->takes_argument ? 1 : 0;
  const size_t n_given = arguments.values.size() + arguments.keywords.size();
  if (n_given != n_expected) {
    Fail("test '" + std::string(name) + "' takes " + std::to_string(n_expected) +
         " arguments, found " + std::to_string(n_given));
    return false;
  }
  const Value argument = n_given == 0               ? Value()
                         : arguments.values.empty() ? arguments.keywords[0].second
                                                    : arguments.values[0];
  return test->test(*this, value, argument);
}

}  // namespace winnow::jinja
