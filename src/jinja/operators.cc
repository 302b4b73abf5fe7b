#include <algorithm>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/unicode.h"

namespace winnow::jinja {
namespace {

constexpr size_t kBytesOfAStep = 256;  // bytes of text compared or searched that count as one step

bool CanBeKey(const Value& value) {
  return value.dict() == nullptr &&
         (value.sequence() == nullptr || value.sequence()->kind != SequenceKind::kList);
}

std::string Described(const Value& value) {  // as in Python's messages
  return value.is_none() ? "None" : std::string(TypeName(value)) + " object";
}

}  // namespace

bool Interpreter::Truth(const Value& value) {
  if (const bool* b = value.boolean()) return *b;
  if (const int64_t* i = value.integer()) return *i != 0;
  if (const double* r = value.real()) return *r != 0;
  if (const Text* t = value.text()) return !t->empty();
  if (const Dict* d = value.dict()) return !d->entries.empty();
  if (const Sequence* s = value.sequence()) {
    return s->kind == SequenceKind::kGenerator || !s->items.empty();
  }
  return value.object() != nullptr;
}

bool Interpreter::Equal(const Value& a, const Value& b) {
  const Level level(*this);
  if (!level || !Step()) return false;
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.text() != nullptr || b.text() != nullptr) {
    if (a.text() == nullptr || b.text() == nullptr) return false;
    if (a.text()->size() != b.text()->size()) return false;
    return Step(a.text()->size() / kBytesOfAStep) && a.text()->view() == b.text()->view();
  }
  if (const auto left = a.whole(), right = b.whole(); left && right) return *left == *right;
  if (a.number() || b.number()) {
    if (!a.number() || !b.number()) return false;
    // long double holds both exactly.
    const auto wide = [](const Value& v) {
      return v.whole() ? static_cast<long double>(*v.whole()) : static_cast<long double>(*v.real());
    };
    return wide(a) == wide(b);
  }
  if (const Dict* left = a.dict(), *right = b.dict(); left != nullptr && right != nullptr) {
    if (left->entries.size() != right->entries.size()) return false;
    return std::all_of(left->entries.begin(), left->entries.end(), [&](const Dict::Entry& entry) {
      const Value* other = FindEntry(*right, entry.key);
      return other != nullptr && Equal(entry.value, *other);
    });
  }
  const Sequence *left = a.sequence(), *right = b.sequence();
  if (left != nullptr && right != nullptr && left != right) {
    if (left->kind != right->kind || left->kind == SequenceKind::kGenerator) return false;
    return left->items.size() == right->items.size() &&
           std::equal(left->items.begin(), left->items.end(), right->items.begin(),
                      [&](const Value& x, const Value& y) { return Equal(x, y); });
  }
  return a.Is(b);
}

bool Interpreter::Less(const Value& a, const Value& b) {
  const Level level(*this);
  if (!level || !Step()) return false;
  if (a.number() && b.number()) {
    if (a.whole() && b.whole()) return *a.whole() < *b.whole();
    const auto wide = [](const Value& v) {
      return v.whole() ? static_cast<long double>(*v.whole()) : static_cast<long double>(*v.real());
    };
    return wide(a) < wide(b);
  }
  if (const Text* left = a.text(), *right = b.text(); left != nullptr && right != nullptr) {
    // UTF-8 sorts in the order of code points.
    Step(std::min(left->size(), right->size()) / kBytesOfAStep);
    return left->view() < right->view();
  }
  const Sequence *left = a.sequence(), *right = b.sequence();
  if (left != nullptr && right != nullptr && left->kind == right->kind &&
      (left->kind == SequenceKind::kList || left->kind == SequenceKind::kTuple)) {
    const size_t n = std::min(left->items.size(), right->items.size());
    for (size_t i = 0; i < n; ++i) {
      if (!Equal(left->items[i], right->items[i])) return Less(left->items[i], right->items[i]);
      if (failed()) return false;
    }
    return left->items.size() < right->items.size();
  }
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) return Fail(*v->undefined().why), false;
  }
  Fail("'<' not supported between '" + std::string(TypeName(a)) + "' and '" +
       std::string(TypeName(b)) + "'");
  return false;
}

bool Interpreter::Contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      Fail("'in <string>' requires a text as its left operand, found " + Described(item));
      return false;
    }
    Step(text->size() / kBytesOfAStep);
    return FindBytes(text->view(), item.text()->view(), 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return FindEntry(*dict, item) != nullptr;
  if (container.is_undefined()) return false;
  if (Sequence* sequence = container.sequence()) {
    if (!Step(sequence->items.size())) return false;
    if (sequence->kind == SequenceKind::kGenerator && std::exchange(sequence->consumed, true)) {
      return false;
    }
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& element) { return Equal(element, item); });
  }
  Fail("argument of type '" + std::string(TypeName(container)) + "' cannot be searched by 'in'");
  return false;
}

bool Interpreter::Compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (op == "<") return Less(a, b);
  if (op == ">") return Less(b, a);
  if (op == "in") return Contains(b, a);
  if (op == "not in") return !Contains(b, a);
  // Not the negation of the reverse comparison: with NaN neither holds.
  if (op == "<=") return Less(a, b) || (!failed() && Equal(a, b));
  return Less(b, a) || (!failed() && Equal(a, b));
}

const Value* Interpreter::FindEntry(const Dict& dict, const Value& key) {
  if (const Text* text = key.text()) return dict.Find(text->view());
  if (!CanBeKey(key)) {
    Fail("a " + std::string(TypeName(key)) + " cannot be a key");
    return nullptr;
  }
  for (const Dict::Entry& entry : dict.entries) {
    if (entry.key.text() == nullptr && Equal(entry.key, key)) return &entry.value;
  }
  return nullptr;
}

void Interpreter::SetEntry(Dict* dict, Value key, Value value) {
  if (!Charge(2 * sizeof(Value))) return;
  if (key.text() == nullptr) {
    const Value* old = FindEntry(*dict, key);
    if (failed()) return;
    if (old != nullptr) {
      *const_cast<Value*>(old) = std::move(value);  // an entry of *dict, which is not const
      return;
    }
  }
  dict->Set(std::move(key), std::move(value));
}

std::optional<std::vector<Value>> Interpreter::Iterate(const Value& value) {
  if (failed()) return std::nullopt;
  std::vector<Value> out;
  if (Sequence* sequence = value.sequence()) {
    if (!Charge(sequence->items.size() * sizeof(Value))) return std::nullopt;
    if (sequence->kind != SequenceKind::kGenerator || !std::exchange(sequence->consumed, true)) {
      out = sequence->items;
    }
  } else if (const Dict* dict = value.dict()) {
    if (!Charge(dict->entries.size() * sizeof(Value))) return std::nullopt;
    for (const Dict::Entry& entry : dict->entries) out.push_back(entry.key);
  } else if (const Text* text = value.text()) {
    for (size_t at = 0; at < text->size();) {
      const size_t bytes = CharacterAt(text->view(), at).bytes;
      out.push_back(Make(text->Slice(at, at + bytes)));
      at += bytes;
      if (!Step()) return std::nullopt;
    }
  } else if (!value.is_undefined()) {
    Fail("a value of type " + std::string(TypeName(value)) + " is not iterable");
    return std::nullopt;
  }
  return out;
}

std::optional<size_t> Interpreter::Length(const Value& value) {
  if (failed()) return std::nullopt;
  if (const Text* text = value.text()) {
    if (text->is_ascii()) return text->size();
    Step(text->size() / kBytesOfAStep);
    return CountCharacters(text->view());
  }
  if (const Dict* dict = value.dict()) return dict->entries.size();
  if (value.is_undefined()) return 0;
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->kind != SequenceKind::kGenerator) {
    return sequence->items.size();
  }
  if (value.object() != nullptr && value.object()->type_name() == "LoopContext") {
    const Value length = value.object()->Attribute(*this, "length");
    return static_cast<size_t>(*length.integer());
  }
  Fail("a value of type " + std::string(TypeName(value)) + " has no length");
  return std::nullopt;
}

Value Interpreter::Attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return Fail(*value.undefined().why);
  if (value.object() != nullptr) return value.object()->Attribute(*this, name);
  Value method = FindMethod(value, name);
  if (!method.is_undefined()) return method;
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->Find(name)) return *found;
  }
  return Nothing("'" + Described(value) + "' has no attribute '" + std::string(name) + "'");
}

Value Interpreter::Item(const Value& value, const Value& index) {
  if (value.is_undefined()) return Fail(*value.undefined().why);
  const Sequence* sequence = value.sequence();
  const auto at = index.whole();
  if (const Dict* dict = value.dict()) {
    const Value* found = CanBeKey(index) ? FindEntry(*dict, index) : nullptr;
    if (found != nullptr) return *found;
  } else if (at && sequence != nullptr && sequence->kind != SequenceKind::kGenerator &&
             sequence->kind != SequenceKind::kView) {
    const auto n = static_cast<int64_t>(sequence->items.size());
    const int64_t place = *at < 0 ? *at + n : *at;
    if (place >= 0 && place < n) return sequence->items[static_cast<size_t>(place)];
  } else if (at && value.text() != nullptr) {
    if (Value character = CharacterIn(*value.text(), *at); !character.is_undefined()) {
      return character;
    }
  }
  if (const Text* name = index.text()) {
    if (value.object() != nullptr) return value.object()->Attribute(*this, name->view());
    if (Value method = FindMethod(value, name->view()); !method.is_undefined()) return method;
    return Nothing("'" + Described(value) + "' has no attribute '" + name->bytes() + "'");
  }
  if (failed()) return Value();
  return Nothing(Described(value) + " has no element " + Str(index).bytes());
}

Value Interpreter::CharacterIn(const Text& text, int64_t index) {
  if (text.is_ascii()) {
    const auto n = static_cast<int64_t>(text.size());
    const int64_t at = index < 0 ? index + n : index;
    if (at < 0 || at >= n) return Nothing("");
    return Make(text.Slice(static_cast<size_t>(at), static_cast<size_t>(at) + 1));
  }
  Step(text.size() / kBytesOfAStep);
  const auto n = static_cast<int64_t>(CountCharacters(text.view()));
  int64_t left = index < 0 ? index + n : index;
  if (left < 0 || left >= n) return Nothing("");
  size_t at = 0;
  for (; left > 0; --left) at += CharacterAt(text.view(), at).bytes;
  return Make(text.Slice(at, at + CharacterAt(text.view(), at).bytes));
}

Value Interpreter::Slice(const Value& value, const Value& begin, const Value& end,
                         const Value& step) {
  if (value.is_undefined()) return Fail(*value.undefined().why);
  const Sequence* sequence = value.sequence();
  const bool sliceable = sequence != nullptr && sequence->kind != SequenceKind::kGenerator &&
                         sequence->kind != SequenceKind::kView;
  if (value.text() == nullptr && !sliceable) {
    return Fail("a value of type " + std::string(TypeName(value)) + " has no slices");
  }
  for (const Value* part : {&begin, &end, &step}) {
    if (!part->is_none() && !part->whole()) return Fail("slice indices must be integers or None");
  }
  const int64_t by = step.whole().value_or(1);
  if (by == 0) return Fail("slice step cannot be zero");
  const auto length = Length(value);
  if (!length) return Value();
  const auto n = static_cast<int64_t>(*length);
  // As in Python's slice.indices.
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? n : n - 1;
  const auto place = [&](const Value& at, int64_t otherwise) {
    if (!at.whole()) return otherwise;
    const int64_t i = *at.whole();
    return std::clamp(i < 0 ? std::max(i, -n - 1) + n : i, low, high);
  };
  const int64_t first = place(begin, by > 0 ? low : high);
  const int64_t last = place(end, by > 0 ? high : low);
  std::vector<size_t> places;
  const bool all_in_a_row = by == 1;
  if (value.text() != nullptr && value.text()->is_ascii() && all_in_a_row) {
    return Make(first < last
                    ? value.text()->Slice(static_cast<size_t>(first), static_cast<size_t>(last))
                    : Text());
  }
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    places.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  if (!Charge(places.size() * sizeof(Value)) || !Step(places.size())) return Value();
  if (value.text() != nullptr) return SliceText(*value.text(), places);
  std::vector<Value> items;
  for (const size_t i : places) items.push_back(sequence->items[i]);
  return MakeSequence(
      sequence->kind == SequenceKind::kTuple ? SequenceKind::kTuple : SequenceKind::kList,
      std::move(items));
}

Value Interpreter::SliceText(const Text& text, const std::vector<size_t>& characters) {
  std::vector<size_t> begins;  // byte offsets of all characters, and the end
  for (size_t at = 0; at < text.size(); at += CharacterAt(text.view(), at).bytes) {
    begins.push_back(at);
  }
  begins.push_back(text.size());
  if (!Charge(begins.size() * sizeof(size_t))) return Value();
  Text out;
  for (const size_t i : characters) out.AppendSlice(text, begins[i], begins[i + 1]);
  return Make(std::move(out));
}

}  // namespace winnow::jinja
