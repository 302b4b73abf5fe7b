#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/text.h"

// Values of expressions: the Python values that templates use.
namespace winnow::jinja {

struct Sequence;
struct Dict;
class Object;

// An undefined value, and the error message for using it.
struct Undefined {
  std::shared_ptr<const std::string> why;
};
struct None {};
using TextPtr = std::shared_ptr<const Text>;

// The Heap of a rendering owns containers and objects; values point to them, as in Python.
class Value {
 public:
  Value() = default;  // None
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(bool boolean) : data_(boolean) {}
  explicit Value(int64_t integer) : data_(integer) {}
  explicit Value(double real) : data_(real) {}
  explicit Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  explicit Value(Sequence* sequence) : data_(sequence) {}
  explicit Value(Dict* dict) : data_(dict) {}
  explicit Value(Object* object) : data_(object) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const Undefined& undefined() const { return *std::get_if<Undefined>(&data_); }

  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const {
    const TextPtr* text = std::get_if<TextPtr>(&data_);
    return text == nullptr ? nullptr : text->get();
  }
  Sequence* sequence() const { return Pointer<Sequence>(); }
  Dict* dict() const { return Pointer<Dict>(); }
  Object* object() const { return Pointer<Object>(); }

  // An integer; true and false count as 1 and 0.
  std::optional<int64_t> whole() const;
  // Any number as a double.
  std::optional<double> number() const;
  // The same object in memory (`sameas`).
  bool Is(const Value& other) const;

 private:
  template <typename T>
  T* Pointer() const {
    T* const* pointer = std::get_if<T*>(&data_);
    return pointer == nullptr ? nullptr : *pointer;
  }

  std::variant<None, Undefined, bool, int64_t, double, TextPtr, Sequence*, Dict*, Object*> data_;
};

enum class SequenceKind {
  kList,
  kTuple,
  kRange,
  kView,       // keys(), values() or items() of a dict
  kGenerator,  // from map, select and others: can be iterated once
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  std::string name;       // a view's: "dict_keys"; a range's arguments: "0, 3"
  bool consumed = false;  // a generator that was iterated
};

// Entries in the order of insertion.
struct Dict {
  struct Entry {
    Value key;
    Value value;
  };
  std::vector<Entry> entries;

  const Value* Find(std::string_view key) const;
  void Set(Value key, Value value);  // a text as key that is not in it yet, or that is
  void Set(Text key, Value value) { Set(Value(std::move(key)), std::move(value)); }
  void Erase(size_t entry);

 private:
  friend class Heap;
  // Index of text keys, once there are many. The views point into the entries' texts.
  mutable std::unordered_map<std::string_view, size_t> index_;
  mutable size_t n_indexed_ = 0;
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> keywords;
};

class Interpreter;

// Namespaces, macros, loops, functions, and methods bound to their object.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string Repr() const = 0;
  virtual bool callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, const Arguments& arguments);
  // Undefined if there is no such attribute.
  virtual Value Attribute(Interpreter& interpreter, std::string_view name);
};

// Owns the containers and objects that values point to.
class Heap {
 public:
  Sequence* NewSequence(SequenceKind kind) {
    sequences_.push_back(std::make_unique<Sequence>());
    sequences_.back()->kind = kind;
    return sequences_.back().get();
  }
  Dict* NewDict() {
    dicts_.push_back(std::make_unique<Dict>());
    return dicts_.back().get();
  }
  template <typename T>
  T* Own(std::unique_ptr<T> object) {
    T* pointer = object.get();
    objects_.push_back(std::move(object));
    return pointer;
  }

 private:
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<std::unique_ptr<Dict>> dicts_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Python's name of a value's type: "str", "list".
std::string_view TypeName(const Value& value);

}  // namespace winnow::jinja
