#include "jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "gguf/printable.h"
#include "jinja/loop.h"

namespace winnow::jinja {
namespace {

constexpr size_t kBytesOfAValue = sizeof(Value) + 8;
constexpr size_t kMaxErrorBytes = 1000;

// A macro, or the body of a `call` block.
class Macro final : public Object {
 public:
  Macro(const Statement& statement, Scope* around) : statement_(statement), around_(around) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string Repr() const override { return "<Macro '" + statement_.text + "'>"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.CallMacro(statement_, around_, arguments);
  }
  Value Attribute(Interpreter& interpreter, std::string_view name) override {
    if (name == "name") return interpreter.MakeText(statement_.text, true);
    return interpreter.Nothing("a macro has no attribute '" + std::string(name) + "'");
  }

 private:
  const Statement& statement_;
  Scope* around_;
};

}  // namespace

Value* Scope::Find(std::string_view name) {
  for (auto& [known, value] : variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  if (Value* old = Find(name)) {
    *old = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Interpreter::Interpreter(const RenderOptions& options, Dict* context, Heap& heap)
    : options_(options), context_(context), heap_(heap) {}

Result<Text> Interpreter::Run(const Ast& ast) {
  Text out;
  out_ = &out;
  scope_ = NewScope(nullptr);
  Execute(ast.body);
  // Errors quote the template, which a file can hold, and may go to a terminal.
  if (error_) return Error{gguf::PrintableUtf8(*error_, kMaxErrorBytes)};
  return out;
}

Value Interpreter::Fail(std::string what) {
  if (!error_) error_ = "line " + std::to_string(line_) + ": " + std::move(what);
  return Nothing("");
}

Value Interpreter::Refuse(std::string template_words) {
  if (!error_) error_ = std::move(template_words);
  return Nothing("");
}

bool Interpreter::Step(size_t n) {
  steps_ += static_cast<int64_t>(n);
  if (steps_ > options_.limits.max_steps) {
    Fail("the template takes more than " + std::to_string(options_.limits.max_steps) + " steps");
  }
  return !failed();
}

bool Interpreter::Charge(size_t bytes) {
  if (bytes > options_.limits.max_work_bytes - work_bytes_) {
    Fail("the template makes more than " + std::to_string(options_.limits.max_work_bytes) +
         " bytes of texts and lists");
    return false;
  }
  work_bytes_ += bytes;
  return !failed();
}

Value Interpreter::Make(Text text) {
  Charge(text.size() + kBytesOfAValue);
  return Value(std::move(text));
}

Value Interpreter::MakeSequence(SequenceKind kind, std::vector<Value> items) {
  Charge((items.size() + 2) * kBytesOfAValue);
  Sequence* sequence = heap_.NewSequence(kind);
  sequence->items = std::move(items);
  return Value(sequence);
}

Value Interpreter::Nothing(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  if (++interpreter_.depth_ > interpreter_.options_.limits.max_depth) {
    interpreter_.Fail("the template calls itself deeper than " +
                      std::to_string(interpreter_.options_.limits.max_depth) + " levels");
  }
}

Scope* Interpreter::NewScope(Scope* parent) {
  Charge(sizeof(Scope) + 2 * kBytesOfAValue);
  scopes_.push_back(std::make_unique<Scope>());
  scopes_.back()->parent = parent;
  return scopes_.back().get();
}

void Interpreter::Print(const Text& text) {
  if (failed()) return;
  n_printed_ += text.size();
  if (n_printed_ > options_.limits.max_output_bytes) {
    Fail("the template writes more than " + std::to_string(options_.limits.max_output_bytes) +
         " bytes");
    return;
  }
  out_->Append(text);
}

Text Interpreter::Captured(const std::vector<const Statement*>& statements, Scope* scope) {
  Text out;
  Text* const out_before = std::exchange(out_, &out);
  Scope* const scope_before = std::exchange(scope_, scope);
  Execute(statements);
  scope_ = scope_before;
  out_ = out_before;
  Charge(out.size());
  return out;
}

Interpreter::Flow Interpreter::Execute(const std::vector<const Statement*>& statements) {
  const Level level(*this);
  if (!level) return Flow::kBreak;
  for (const Statement* statement : statements) {
    if (!Step()) return Flow::kBreak;
    const Flow flow = Execute(*statement);
    if (failed()) return Flow::kBreak;
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::Execute(const Statement& statement) {
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::kText:
      Print(Text(statement.text, true));
      return Flow::kOn;
    case StatementKind::kPrint: {
      const Value value = Evaluate(*statement.value);
      if (!failed()) Print(value.text() != nullptr ? *value.text() : Str(value));
      return Flow::kOn;
    }
    case StatementKind::kIf:
      return ExecuteIf(statement);
    case StatementKind::kFor: {
      const Value value = Evaluate(*statement.value);
      if (failed()) return Flow::kOn;
      if (auto items = Iterate(value)) ExecuteLoop(statement, scope_, *std::move(items), 0);
      return Flow::kOn;
    }
    case StatementKind::kSet: {
      Value value = Evaluate(*statement.value);
      if (!failed()) Assign(*statement.target, std::move(value), scope_);
      return Flow::kOn;
    }
    case StatementKind::kSetBlock:
      ExecuteSetBlock(statement);
      return Flow::kOn;
    case StatementKind::kMacro:
      for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
      scope_->Set(
          statement.text,
          Value(static_cast<Object*>(heap_.Own(std::make_unique<Macro>(statement, scope_)))));
      return Flow::kOn;
    case StatementKind::kCall:
      ExecuteCall(statement);
      return Flow::kOn;
    case StatementKind::kFilter: {
      Text text = Captured(statement.body, NewScope(scope_));
      const Value value = ApplyFilters(statement.value, Make(std::move(text)));
      if (!failed()) Print(Str(value));
      return Flow::kOn;
    }
    case StatementKind::kScope:
      return ExecuteScope(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

// An elif is an if that is alone in the else branch of another. The loop avoids recursion on
// chains.
Interpreter::Flow Interpreter::ExecuteIf(const Statement& first) {
  const Statement* branch = &first;
  for (;;) {
    const Value condition = Evaluate(*branch->value);
    if (failed()) return Flow::kBreak;
    if (Truth(condition)) return Execute(branch->body);
    if (branch->other.size() != 1 || branch->other[0]->kind != StatementKind::kIf) {
      return Execute(branch->other);
    }
    branch = branch->other[0];
    if (!Step()) return Flow::kBreak;
    line_ = branch->line;
  }
}

Interpreter::Flow Interpreter::ExecuteScope(const Statement& statement) {
  Scope* const before = scope_;
  Scope* const inner = NewScope(before);
  for (const auto& [target, expression] : statement.with) {
    Value value = Evaluate(*expression);  // in the enclosing scope: the others are not visible
    if (failed()) return Flow::kBreak;
    Assign(*target, std::move(value), inner);
  }
  scope_ = inner;
  const Flow flow = Execute(statement.body);
  scope_ = before;
  return flow;
}

void Interpreter::ExecuteSetBlock(const Statement& statement) {
  Text text = Captured(statement.body, NewScope(scope_));
  Value value = ApplyFilters(statement.value, Make(std::move(text)));
  if (!failed()) Assign(*statement.target, std::move(value), scope_);
}

void Interpreter::ExecuteCall(const Statement& statement) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->captured = true;
  const Value function = Evaluate(*statement.value->items[0]);
  if (failed()) return;
  auto arguments = EvaluateArguments(*statement.value);
  if (!arguments) return;
  arguments->keywords.emplace_back(
      "caller", Value(static_cast<Object*>(heap_.Own(std::make_unique<Macro>(statement, scope_)))));
  const Value result = Call(function, *arguments);
  if (!failed()) Print(Str(result));
}

bool Interpreter::Assign(const Expression& target, Value value, Scope* scope) {
  if (target.kind == ExpressionKind::kName) {
    scope->Set(target.text, std::move(value));
    return true;
  }
  if (target.kind == ExpressionKind::kNamespaceAttribute) {
    const Value holder = Lookup(target.text);
    auto* space = holder.object() == nullptr ? nullptr : dynamic_cast<Namespace*>(holder.object());
    if (space == nullptr) {
      Fail("'" + target.text + "' is not a namespace: its attributes cannot be set");
      return false;
    }
    space->values()->Set(Text(target.operators[0], true), std::move(value));
    return Charge(kBytesOfAValue);
  }
  auto items = Iterate(value);
  if (!items) return false;
  if (items->size() != target.items.size()) {
    Fail("expected " + std::to_string(target.items.size()) + " values to unpack, found " +
         std::to_string(items->size()));
    return false;
  }
  for (size_t i = 0; i < items->size(); ++i) {
    if (!Assign(*target.items[i], std::move((*items)[i]), scope)) return false;
  }
  return true;
}

void Interpreter::ExecuteLoop(const Statement& statement, Scope* around, std::vector<Value> items,
                              int depth) {
  const Level level(*this);
  if (!level) return;
  Scope* const before = scope_;
  auto* loop = heap_.Own(std::make_unique<Loop>(*this, statement, around, std::move(items), depth));
  Scope* inner = nullptr;
  bool ran = false;
  while (!failed() && loop->Advance()) {
    if (!Step()) break;
    if (inner == nullptr || inner->captured) inner = NewScope(around);
    inner->variables.clear();
    inner->Set("loop", Value(static_cast<Object*>(loop)));
    if (!Assign(*statement.target, loop->item(), inner)) break;
    scope_ = inner;
    const Flow flow = Execute(statement.body);
    scope_ = before;
    if (flow == Flow::kBreak) break;
    // As in jinja2: an iteration that ends with `continue` does not suppress the else branch.
    ran = ran || flow == Flow::kOn;
  }
  if (ran || failed()) return;
  scope_ = NewScope(around);
  Execute(statement.other);
  scope_ = before;
}

Value Interpreter::RunRecursively(const Statement& loop, Scope* around, const Value& items,
                                  int depth) {
  auto list = Iterate(items);
  if (!list) return Value();
  Text out;
  Text* const out_before = std::exchange(out_, &out);
  ExecuteLoop(loop, around, *std::move(list), depth);
  out_ = out_before;
  return Make(std::move(out));
}

Value Interpreter::CallMacro(const Statement& macro, Scope* around, const Arguments& arguments) {
  const Level level(*this);
  if (!level) return Value();
  const std::string name = macro.text.empty() ? "caller" : macro.text;
  Scope* const inner = NewScope(around);
  const size_t n_parameters = macro.parameters.size();
  for (size_t i = 0; i < std::min(n_parameters, arguments.values.size()); ++i) {
    inner->Set(macro.parameters[i].first, arguments.values[i]);
  }
  std::vector<Value> more;
  for (size_t i = n_parameters; i < arguments.values.size(); ++i) {
    more.push_back(arguments.values[i]);
  }
  Dict* const keywords = heap_.NewDict();
  for (const auto& [keyword, value] : arguments.keywords) {
    const auto parameter =
        std::find_if(macro.parameters.begin(), macro.parameters.end(),
                     [&keyword = keyword](const auto& p) { return p.first == keyword; });
    if (parameter != macro.parameters.end() && inner->Find(parameter->first) == nullptr) {
      inner->Set(parameter->first, value);
    } else if (keyword == "caller" && macro.takes_caller) {
      inner->Set("caller", value);
    } else if (macro.takes_keywords) {
      keywords->Set(Text(keyword, true), value);
    } else {
      return Fail("macro '" + name + "' takes no argument '" + keyword + "'");
    }
  }
  if (!more.empty() && !macro.takes_more) {
    return Fail("macro '" + name + "' takes at most " + std::to_string(n_parameters) +
                " arguments, found " + std::to_string(arguments.values.size()));
  }
  Scope* const scope_before = std::exchange(scope_, inner);
  for (const auto& [parameter, default_value] : macro.parameters) {
    if (inner->Find(parameter) != nullptr) continue;
    inner->Set(parameter, default_value != nullptr
                              ? Evaluate(*default_value)
                              : Nothing("parameter '" + parameter + "' was not provided"));
  }
  scope_ = scope_before;
  if (macro.takes_more) {
    inner->Set("varargs", MakeSequence(SequenceKind::kTuple, std::move(more)));
  }
  if (macro.takes_keywords) inner->Set("kwargs", Value(keywords));
  if (macro.takes_caller && inner->Find("caller") == nullptr) {
    inner->Set("caller", Nothing("No caller defined"));
  }
  if (failed()) return Value();
  return Make(Captured(macro.body, inner));
}

}  // namespace winnow::jinja
