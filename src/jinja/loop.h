#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/interpreter.h"

namespace winnow::jinja {

// The value of namespace(): attributes that inner blocks can set.
class Namespace final : public Object {
 public:
  explicit Namespace(Dict* values) : values_(values) {}
  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override { return "<Namespace>"; }
  Dict* values() { return values_; }
  Value Attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  Dict* values_;
};

// A running for loop: `loop` in its body. Items are fetched one by one, so that a condition (`for x
// in y if ...`) sees the changes that the body made before.
class Loop final : public Object {
 public:
  Loop(Interpreter& interpreter, const Statement& statement, Scope* around,
       std::vector<Value> items, int depth);

  bool Advance();  // false: no next item
  const Value& item() const { return current_; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string Repr() const override;
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, const Arguments& arguments) override;
  Value Attribute(Interpreter& interpreter, std::string_view name) override;

 private:
  bool Fetch();  // fetches the next item that passes the loop's condition; false: none
  int64_t length();

  Interpreter& interpreter_;
  const Statement& statement_;
  Scope* around_;
  std::vector<Value> items_;
  size_t n_taken_ = 0;         // from items_
  std::deque<Value> fetched_;  // passed the condition, not visited yet
  int64_t index0_ = -1;
  int depth0_ = 0;
  Value current_;
  Value before_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace winnow::jinja
