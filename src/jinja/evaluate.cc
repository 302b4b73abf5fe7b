#include <algorithm>
#include <utility>

#include "jinja/interpreter.h"

namespace winnow::jinja {

using Kind = ExpressionKind;

Value Interpreter::Evaluate(const Expression& expression) {
  const Level level(*this);
  if (!level || !Step()) return Value();
  line_ = expression.line;
  return EvaluateUnlimited(expression);
}

Value Interpreter::EvaluateUnlimited(const Expression& e) {
  switch (e.kind) {
    case Kind::kString:
      return MakeText(e.text, true);
    case Kind::kInteger:
      return Value(e.integer);
    case Kind::kFloat:
      return Value(e.real);
    case Kind::kBoolean:
      return Value(e.integer != 0);
    case Kind::kNone:
      return Value();
    case Kind::kName:
      return Lookup(e.text);
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<Value> items;
      for (const Expression* item : e.items) items.push_back(Evaluate(*item));
      return MakeSequence(e.kind == Kind::kList ? SequenceKind::kList : SequenceKind::kTuple,
                          std::move(items));
    }
    case Kind::kDict: {
      Dict* dict = heap_.NewDict();
      for (size_t i = 0; i + 1 < e.items.size(); i += 2) {
        Value key = Evaluate(*e.items[i]);
        Value value = Evaluate(*e.items[i + 1]);
        if (failed()) return Value();
        SetEntry(dict, std::move(key), std::move(value));
      }
      return Value(dict);
    }
    case Kind::kAttribute: {
      const Value value = Evaluate(*e.items[0]);
      line_ = e.line;
      return failed() ? Value() : Attribute(value, e.text);
    }
    case Kind::kItem:
      return EvaluateItem(e);
    case Kind::kCall: {
      const Value function = Evaluate(*e.items[0]);
      if (failed()) return Value();
      const auto arguments = EvaluateArguments(e);
      line_ = e.line;
      return arguments ? Call(function, *arguments) : Value();
    }
    case Kind::kFilter: {
      const Value value = Evaluate(*e.items[0]);
      if (failed()) return Value();
      const auto arguments = EvaluateArguments(e);
      line_ = e.line;
      return arguments ? CallFilter(e.text, value, *arguments) : Value();
    }
    case Kind::kTest: {
      const Value value = Evaluate(*e.items[0]);
      if (failed()) return Value();
      const auto arguments = EvaluateArguments(e);
      line_ = e.line;
      return arguments ? Value(CallTest(e.text, value, *arguments)) : Value();
    }
    case Kind::kNot:
      return Value(!Truth(Evaluate(*e.items[0])));
    case Kind::kAnd:
    case Kind::kOr: {
      Value left = Evaluate(*e.items[0]);
      if (failed() || Truth(left) == (e.kind == Kind::kOr)) return left;
      return Evaluate(*e.items[1]);
    }
    case Kind::kNegative:
    case Kind::kPositive:
      return EvaluateNumber(e);
    case Kind::kBinary: {
      const Value left = Evaluate(*e.items[0]);
      const Value right = failed() ? Value() : Evaluate(*e.items[1]);
      line_ = e.line;
      return failed() ? Value() : Operate(e.text, left, right);
    }
    case Kind::kConcatenate: {
      Text text;
      for (const Expression* item : e.items) {
        const Value value = Evaluate(*item);
        if (failed()) return Value();
        const Text part = value.text() != nullptr ? *value.text() : Str(value);
        if (!Charge(part.size())) return Value();  // before it is made
        text.Append(part);
      }
      return Value(std::move(text));
    }
    case Kind::kCompare:
      return EvaluateCompare(e);
    case Kind::kCondition: {
      const Value condition = Evaluate(*e.items[1]);
      if (failed()) return Value();
      if (Truth(condition)) return Evaluate(*e.items[0]);
      if (e.items[2] != nullptr) return Evaluate(*e.items[2]);
      return Nothing("the inline if-expression on line " + std::to_string(e.line) +
                     " evaluated to false and no else section was defined");
    }
    case Kind::kSlice:
    case Kind::kNamespaceAttribute:
      break;  // never evaluated by themselves
  }
  return Fail("a slice outside of brackets");
}

Value Interpreter::Lookup(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->Find(name)) return *found;
  }
  if (const Value* found = context_->Find(name)) return *found;
  if (const Native global = FindGlobal(name)) {
    return Value(
        static_cast<Object*>(heap_.Own(std::make_unique<NativeObject>(name, global, Value()))));
  }
  return Nothing("'" + std::string(name) + "' is undefined");
}

Value Interpreter::EvaluateCompare(const Expression& e) {
  Value left = Evaluate(*e.items[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = failed() ? Value() : Evaluate(*e.items[i + 1]);
    line_ = e.line;
    if (failed()) return Value();
    if (!Compare(e.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(!failed());
}

Value Interpreter::EvaluateItem(const Expression& e) {
  const Value value = Evaluate(*e.items[0]);
  if (failed()) return Value();
  const Expression& index = *e.items[1];
  if (index.kind != Kind::kSlice) {
    const Value at = Evaluate(index);
    line_ = e.line;
    return failed() ? Value() : Item(value, at);
  }
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.items[i] != nullptr) parts[i] = Evaluate(*index.items[i]);
  }
  line_ = e.line;
  return failed() ? Value() : Slice(value, parts[0], parts[1], parts[2]);
}

Value Interpreter::EvaluateNumber(const Expression& e) {
  const Value value = Evaluate(*e.items[0]);
  line_ = e.line;
  if (failed()) return Value();
  const bool negative = e.kind == Kind::kNegative;
  if (const double* real = value.real()) return Value(negative ? -*real : *real);
  if (const auto whole = value.whole()) {
    if (!negative) return Value(*whole);
    return Operate("-", Value(int64_t{0}), Value(*whole));
  }
  if (value.is_undefined()) return Fail(*value.undefined().why);
  return Fail(std::string("'") + (negative ? "-" : "+") + "' before a value of type " +
              std::string(TypeName(value)));
}

std::optional<Arguments> Interpreter::EvaluateArguments(const Expression& e) {
  Arguments out;
  for (size_t i = 1; i < e.items.size(); ++i) out.values.push_back(Evaluate(*e.items[i]));
  for (const auto& [name, expression] : e.keywords) {
    out.keywords.emplace_back(name, Evaluate(*expression));
  }
  if (failed()) return std::nullopt;
  if (e.list_argument != nullptr) {
    const auto more = Iterate(Evaluate(*e.list_argument));
    if (!more) return std::nullopt;
    out.values.insert(out.values.end(), more->begin(), more->end());
  }
  if (e.map_argument != nullptr) {
    const Value map = Evaluate(*e.map_argument);
    if (failed()) return std::nullopt;
    if (map.dict() == nullptr) {
      Fail("** before a value of type " + std::string(TypeName(map)) + ", expected a dict");
      return std::nullopt;
    }
    for (const Dict::Entry& entry : map.dict()->entries) {
      const Text* name = entry.key.text();
      if (name == nullptr) {
        Fail("** before a dict whose keys are not texts");
        return std::nullopt;
      }
      out.keywords.emplace_back(name->bytes(), entry.value);
    }
  }
  if (failed()) return std::nullopt;
  return out;
}

Value Interpreter::Call(const Value& function, const Arguments& arguments) {
  const Level level(*this);
  if (!level || !Step()) return Value();
  if (function.is_undefined()) return Fail(*function.undefined().why);
  if (function.object() == nullptr || !function.object()->callable()) {
    return Fail("a value of type " + std::string(TypeName(function)) + " cannot be called");
  }
  return function.object()->Call(*this, arguments);
}

// The parser chains filters; the innermost one has no operand.
Value Interpreter::ApplyFilters(const Expression* filters, Value value) {
  if (filters == nullptr || failed()) return value;
  const Level level(*this);
  if (!level) return value;
  if (filters->items[0] != nullptr) value = ApplyFilters(filters->items[0], std::move(value));
  const auto arguments = EvaluateArguments(*filters);
  line_ = filters->line;
  return arguments ? CallFilter(filters->text, value, *arguments) : Value();
}

std::vector<std::optional<Value>> Interpreter::Bind(
    std::string_view function, const Arguments& arguments,
    std::initializer_list<std::string_view> parameters, size_t n_required) {
  std::vector<std::optional<Value>> out(parameters.size());
  const std::string name(function);
  if (arguments.values.size() > parameters.size()) {
    Fail(name + " takes at most " + std::to_string(parameters.size()) + " arguments, found " +
         std::to_string(arguments.values.size()));
    return out;
  }
  for (size_t i = 0; i < arguments.values.size(); ++i) out[i] = arguments.values[i];
  for (const auto& [keyword, value] : arguments.keywords) {
    const auto found = std::find(parameters.begin(), parameters.end(), keyword);
    const auto at = static_cast<size_t>(found - parameters.begin());
    if (found == parameters.end() || out[at]) {
      Fail(name + (found == parameters.end() ? " takes no argument '" : " is given twice: '") +
           keyword + "'");
      return out;
    }
    out[at] = value;
  }
  for (size_t i = 0; i < n_required; ++i) {
    if (!out[i]) {
      Fail(name + " needs the argument '" + std::string(parameters.begin()[i]) + "'");
      out[i] = Value();  // the caller may read required arguments
    }
  }
  return out;
}

}  // namespace winnow::jinja
