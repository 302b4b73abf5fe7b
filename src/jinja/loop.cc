#include "jinja/loop.h"

namespace winnow::jinja {
namespace {

Value Cycle(Interpreter& in, const Value& self, const Arguments& arguments) {
  if (arguments.values.empty()) return in.Fail("loop.cycle: no items for cycling given");
  const auto index = static_cast<size_t>(*self.integer());
  return arguments.values[index % arguments.values.size()];
}

// loop.changed(...), bound to its loop.
class Changed final : public Object {
 public:
  explicit Changed(std::optional<std::vector<Value>>* last) : last_(last) {}
  std::string_view type_name() const override { return "method"; }
  std::string Repr() const override { return "<bound method LoopContext.changed>"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& in, const Arguments& arguments) override {
    bool same = last_->has_value() && (*last_)->size() == arguments.values.size();
    for (size_t i = 0; same && i < arguments.values.size(); ++i) {
      same = in.Equal((**last_)[i], arguments.values[i]);
    }
    if (!same) *last_ = arguments.values;
    return Value(!same);
  }

 private:
  std::optional<std::vector<Value>>* last_;
};

}  // namespace

Value Namespace::Attribute(Interpreter& interpreter, std::string_view name) {
  if (const Value* found = values_->Find(name)) return *found;
  return interpreter.Nothing("'Namespace object' has no attribute '" + std::string(name) + "'");
}

Loop::Loop(Interpreter& interpreter, const Statement& statement, Scope* around,
           std::vector<Value> items, int depth)
    : interpreter_(interpreter),
      statement_(statement),
      around_(around),
      items_(std::move(items)),
      depth0_(depth) {}

bool Loop::Fetch() {
  while (n_taken_ < items_.size()) {
    Value value = items_[n_taken_++];
    if (statement_.condition != nullptr) {
      if (!interpreter_.Step()) return false;
      Scope* const inner = interpreter_.NewScope(around_);
      if (!interpreter_.Assign(*statement_.target, value, inner)) return false;
      Scope* const before = std::exchange(interpreter_.scope_, inner);
      const Value passes = interpreter_.Evaluate(*statement_.condition);
      interpreter_.scope_ = before;
      if (interpreter_.failed()) return false;
      if (!interpreter_.Truth(passes)) continue;
    }
    fetched_.push_back(std::move(value));
    return true;
  }
  return false;
}

bool Loop::Advance() {
  if (fetched_.empty() && !Fetch()) return false;
  before_ = std::exchange(current_, std::move(fetched_.front()));
  fetched_.pop_front();
  ++index0_;
  return true;
}

int64_t Loop::length() {
  while (Fetch()) {
  }
  return index0_ + 1 + static_cast<int64_t>(fetched_.size());
}

std::string Loop::Repr() const { return "<LoopContext " + std::to_string(index0_ + 1) + ">"; }

Value Loop::Call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.recursive) {
    return interpreter.Fail("a loop is called that is not marked 'recursive'");
  }
  const auto bound = interpreter.Bind("loop", arguments, {"items"}, 1);
  if (interpreter.failed()) return Value();
  return interpreter.RunRecursively(statement_, around_, *bound[0], depth0_ + 1);
}

Value Loop::Attribute(Interpreter& interpreter, std::string_view name) {
  if (name == "index0") return Value(index0_);
  if (name == "index") return Value(index0_ + 1);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(fetched_.empty() && !Fetch());
  if (name == "length") return Value(length());
  if (name == "revindex") return Value(length() - index0_);
  if (name == "revindex0") return Value(length() - index0_ - 1);
  if (name == "depth") return Value(int64_t{depth0_ + 1});
  if (name == "depth0") return Value(int64_t{depth0_});
  if (name == "previtem") {
    return index0_ > 0 ? before_ : interpreter.Nothing("there is no previous item");
  }
  if (name == "nextitem") {
    if (fetched_.empty() && !Fetch()) return interpreter.Nothing("there is no next item");
    return fetched_.front();
  }
  if (name == "cycle") {
    return Value(static_cast<Object*>(
        interpreter.heap().Own(std::make_unique<NativeObject>("cycle", &Cycle, Value(index0_)))));
  }
  if (name == "changed") {
    return Value(
        static_cast<Object*>(interpreter.heap().Own(std::make_unique<Changed>(&last_changed_))));
  }
  return interpreter.Nothing("'LoopContext object' has no attribute '" + std::string(name) + "'");
}

}  // namespace winnow::jinja
