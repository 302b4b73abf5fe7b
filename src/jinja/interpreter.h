#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/template.h"
#include "jinja/value.h"

namespace winnow::jinja {

// The variables of a block and a link to the enclosing scope.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;  // names point into the Ast
  bool captured = false;  // a macro refers to it, which may outlive the block

  Value* Find(std::string_view name);  // in this scope only
  void Set(std::string_view name, Value value);
};

// Renders one template once. Errors are stored (`Fail`), not returned: after the first one, every
// function does nothing and returns an empty value, and Run returns the error.
class Interpreter {
 public:
  Interpreter(const RenderOptions& options, Dict* context, Heap& heap);

  Result<Text> Run(const Ast& ast);

  // Failures and limits.
  bool failed() const { return error_.has_value(); }
  Value Fail(std::string what);              // adds the line number
  Value Refuse(std::string template_words);  // raise_exception
  bool Step(size_t n = 1);                   // false: failed
  bool Charge(size_t bytes);                 // before allocating them; false: failed
  const RenderOptions& options() const { return options_; }

  // Makes values.
  Heap& heap() { return heap_; }
  Value Make(Text text);
  Value MakeText(std::string_view bytes, bool trusted) {
    return Make(Text(std::string(bytes), trusted));
  }
  Value MakeSequence(SequenceKind kind, std::vector<Value> items);
  Value MakeList(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kList, std::move(items));
  }
  Value Nothing(std::string why);  // undefined; `why` explains it in error messages

  // Python's operations on values: operators.cc.
  bool Truth(const Value& value);
  bool Equal(const Value& a, const Value& b);
  bool Less(const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& item);
  bool Compare(std::string_view op, const Value& a, const Value& b);
  Value Operate(std::string_view op, const Value& a, const Value& b);  // arithmetic.cc
  Value Attribute(const Value& value, std::string_view name);          // value.name
  Value Item(const Value& value, const Value& index);                  // value[index]
  Value Slice(const Value& value, const Value& begin, const Value& end, const Value& step);
  std::optional<std::vector<Value>> Iterate(const Value& value);  // fails if it is not iterable
  std::optional<size_t> Length(const Value& value);               // fails if it has no length
  const Value* FindEntry(const Dict& dict, const Value& key);
  void SetEntry(Dict* dict, Value key, Value value);
  Value FindMethod(const Value& value, std::string_view name);  // undefined: no such method

  // Values as text: show.cc.
  Text Str(const Value& value);
  void Repr(const Value& value, Text* out);
  struct JsonStyle {
    bool ensure_ascii = false;
    bool sort_keys = false;
    std::optional<std::string> indent;  // for each level
    std::string between_items = ", ";
    std::string after_key = ": ";
  };
  void Json(const Value& value, const JsonStyle& style, int level, Text* out);

  // Calls.
  Value Call(const Value& function, const Arguments& arguments);
  Value CallFilter(std::string_view name, const Value& value, const Arguments& arguments);
  bool CallTest(std::string_view name, const Value& value, const Arguments& arguments);
  Value CallMacro(const Statement& macro, Scope* around, const Arguments& arguments);
  Value RunRecursively(const Statement& loop, Scope* around, const Value& items, int depth);

  // Matches arguments to the parameters of a function by name. Fails if one is missing, unknown or
  // given twice.
  std::vector<std::optional<Value>> Bind(std::string_view function, const Arguments& arguments,
                                         std::initializer_list<std::string_view> parameters,
                                         size_t n_required = 0);

  // Counts one more level of evaluation while it lives. Converts to false if failed, such as too
  // deep.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter_.depth_; }
    explicit operator bool() const { return !interpreter_.failed(); }

   private:
    Interpreter& interpreter_;
  };

  Value Evaluate(const Expression& expression);
  bool Assign(const Expression& target, Value value, Scope* scope);
  Scope* scope() { return scope_; }

 private:
  friend class Loop;
  enum class Flow { kOn, kBreak, kContinue };

  Flow Execute(const std::vector<const Statement*>& statements);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const Statement& first);
  void ExecuteLoop(const Statement& statement, Scope* around, std::vector<Value> items, int depth);
  void ExecuteSetBlock(const Statement& statement);
  void ExecuteCall(const Statement& statement);
  Flow ExecuteScope(const Statement& statement);
  Text Captured(const std::vector<const Statement*>& statements, Scope* scope);
  void Print(const Text& text);
  Value ApplyFilters(const Expression* filters, Value value);

  Value EvaluateUnlimited(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateItem(const Expression& expression);
  Value EvaluateNumber(const Expression& expression);  // + and - before a number
  std::optional<Arguments> EvaluateArguments(const Expression& expression);
  Value Lookup(std::string_view name);
  Value CharacterIn(const Text& text, int64_t index);  // undefined: out of range
  Value SliceText(const Text& text, const std::vector<size_t>& characters);
  Scope* NewScope(Scope* parent);

  const RenderOptions& options_;
  Dict* context_;
  Heap& heap_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  size_t n_printed_ = 0;
  int64_t steps_ = 0;
  size_t work_bytes_ = 0;
  int depth_ = 0;
  int line_ = 0;
  std::optional<std::string> error_;
};

// A built-in function: filter, global or method.
using Native = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);
struct NamedNative {
  std::string_view name;
  Native function = nullptr;
};

// A built-in function as a value: a global, or a method bound to its object.
class NativeObject final : public Object {
 public:
  NativeObject(std::string_view name, Native function, Value self)
      : name_(name), function_(function), self_(std::move(self)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string Repr() const override { return "<built-in function " + std::string(name_) + ">"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override {
    return function_(interpreter, self_, arguments);
  }

 private:
  std::string_view name_;
  Native function_;
  Value self_;
};

// Find built-in functions by name; null: no such function.
Native FindFilter(std::string_view name);      // filters.cc
Native FindTextFilter(std::string_view name);  // filters_text.cc
Native FindListFilter(std::string_view name);  // filters_lists.cc
Native FindGlobal(std::string_view name);      // globals.cc
Native FindTextMethod(std::string_view name);  // methods_text.cc
Native FindTextTest(std::string_view name);    // methods_text_more.cc
Native FindListMethod(std::string_view name);  // methods_containers.cc
Native FindTupleMethod(std::string_view name);
Native FindDictMethod(std::string_view name);
bool IsKnownTest(std::string_view name);  // tests.cc

Native FindIn(std::span<const NamedNative> table, std::string_view name);

// The first position of `what` in `text` at or after byte `from`; npos: not found. Cost: linear in
// both sizes for all inputs.
size_t FindBytes(std::string_view text, std::string_view what, size_t from);

// A number as Python prints it.
std::string ShowFloat(double value);

// "%d items" % value, and "{} items".format(values): format.cc.
Value PercentFormat(Interpreter& interpreter, const Text& format, const Value& values);
Value BraceFormat(Interpreter& interpreter, const Text& format, const Arguments& arguments);
Text StrftimeNow(const RenderOptions& options, const Text& format);

// The values sorted by `keys`, which has the same size. Stable. If a comparison fails, every value
// is still returned once.
std::vector<Value> Sorted(Interpreter& interpreter, std::vector<Value> values,
                          const std::vector<Value>& keys, bool reverse);
// `value.a.0.b`, where `path` is "a.0.b" or a number, as in arguments of filters.
Value AttributePath(Interpreter& interpreter, const Value& value, const Value& path);
Value IgnoringCase(Interpreter& interpreter, const Value& value);

}  // namespace winnow::jinja
