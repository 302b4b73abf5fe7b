#include "jinja/value.h"

namespace winnow::jinja {
namespace {

constexpr size_t kEntriesWithoutIndex = 12;

}  // namespace

std::optional<int64_t> Value::whole() const {
  if (const int64_t* i = integer()) return *i;
  if (const bool* b = boolean()) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* r = real()) return *r;
  if (const auto i = whole()) return static_cast<double>(*i);
  return std::nullopt;
}

bool Value::Is(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none()) return true;
  if (is_undefined()) return undefined().why == other.undefined().why;
  if (const bool* b = boolean()) return *b == *other.boolean();
  // CPython shares small integers and constants; here equal numbers and texts are the same.
  if (const int64_t* i = integer()) return *i == *other.integer();
  if (const double* r = real()) return *r == *other.real();
  if (const Text* t = text()) return t->view() == other.text()->view();
  return sequence() == other.sequence() && dict() == other.dict() && object() == other.object();
}

const Value* Dict::Find(std::string_view key) const {
  if (entries.size() <= kEntriesWithoutIndex) {
    for (const Entry& entry : entries) {
      const Text* text = entry.key.text();
      if (text != nullptr && text->view() == key) return &entry.value;
    }
    return nullptr;
  }
  for (; n_indexed_ < entries.size(); ++n_indexed_) {
    if (const Text* text = entries[n_indexed_].key.text()) index_[text->view()] = n_indexed_;
  }
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &entries[found->second].value;
}

void Dict::Set(Value key, Value value) {
  const Text* text = key.text();
  if (const Value* old = text == nullptr ? nullptr : Find(text->view())) {
    *const_cast<Value*>(old) = std::move(value);  // an entry of this dict, which is not const
    return;
  }
  entries.push_back({std::move(key), std::move(value)});
}

void Dict::Erase(size_t entry) {
  index_.clear();
  n_indexed_ = 0;
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(entry));
}

std::string_view TypeName(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_undefined()) return "Undefined";
  if (value.boolean() != nullptr) return "bool";
  if (value.integer() != nullptr) return "int";
  if (value.real() != nullptr) return "float";
  if (value.text() != nullptr) return "str";
  if (value.dict() != nullptr) return "dict";
  if (const Sequence* sequence = value.sequence()) {
    switch (sequence->kind) {
      case SequenceKind::kList:
        return "list";
      case SequenceKind::kTuple:
        return "tuple";
      case SequenceKind::kRange:
        return "range";
      case SequenceKind::kView:
        return sequence->name;
      case SequenceKind::kGenerator:
        return "generator";
    }
  }
  return value.object()->type_name();
}

}  // namespace winnow::jinja
