#include <algorithm>
#include <array>
#include <utility>

#include "jinja/interpreter.h"

// Methods of lists, tuples and dicts. Methods that modify their object are included, unlike in the
// sandbox of transformers: some templates, written for other engines, use them.
namespace winnow::jinja {
namespace {

using Values = std::vector<Value>;

Values& ListItems(const Value& self) { return self.sequence()->items; }

// Whether `value` is `container` or contains it; then it cannot be put into the container.
bool Holds(Interpreter& in, const Value& value, const Value& container) {
  const Interpreter::Level level(in);
  if (!level || !in.Step()) return true;
  if (value.sequence() != nullptr) {
    return value.sequence() == container.sequence() ||
           std::any_of(value.sequence()->items.begin(), value.sequence()->items.end(),
                       [&](const Value& item) { return Holds(in, item, container); });
  }
  if (const Dict* dict = value.dict()) {
    return dict == container.dict() ||
           std::any_of(dict->entries.begin(), dict->entries.end(),
                       [&](const Dict::Entry& entry) { return Holds(in, entry.value, container); });
  }
  return false;
}

bool MayHold(Interpreter& in, const Value& container, const Value& value) {
  if (Holds(in, value, container)) {
    in.Fail("a list or dict cannot hold itself");
    return false;
  }
  return in.Charge(sizeof(Value));
}

Value Append(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("append", arguments, {"object"}, 1);
  if (in.failed() || !MayHold(in, self, *given[0])) return Value();
  ListItems(self).push_back(*given[0]);
  return Value();
}

Value Extend(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("extend", arguments, {"iterable"}, 1);
  if (in.failed()) return Value();
  const auto items = in.Iterate(*given[0]);
  if (!items) return Value();
  for (const Value& item : *items) {
    if (!MayHold(in, self, item)) return Value();
    ListItems(self).push_back(item);
  }
  return Value();
}

Value Insert(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("insert", arguments, {"index", "object"}, 2);
  if (in.failed()) return Value();
  if (!given[0]->whole()) return in.Fail("insert: expected a number");
  Values& items = ListItems(self);
  if (!MayHold(in, self, *given[1]) || !in.Step(items.size() / 16)) return Value();
  const auto n = static_cast<int64_t>(items.size());
  const int64_t at =
      std::clamp(*given[0]->whole() < 0 ? std::max(*given[0]->whole(), -n) + n : *given[0]->whole(),
                 int64_t{0}, n);
  items.insert(items.begin() + at, *given[1]);
  return Value();
}

Value PopItem(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("pop", arguments, {"index"});
  if (in.failed()) return Value();
  if (given[0] && !given[0]->whole()) return in.Fail("pop: expected a number");
  Values& items = ListItems(self);
  const auto n = static_cast<int64_t>(items.size());
  const int64_t index = given[0] ? *given[0]->whole() : -1;
  if (index < -n || index >= n) return in.Fail("pop: index out of range");
  const auto place = items.begin() + (index < 0 ? index + n : index);
  Value out = *place;
  if (!in.Step(items.size() / 16)) return Value();
  items.erase(place);
  return out;
}

Value Clear(Interpreter&, const Value& self, const Arguments&) {
  ListItems(self).clear();
  return Value();
}

Value ReverseItems(Interpreter& in, const Value& self, const Arguments&) {
  if (in.Step(ListItems(self).size() / 16))
    std::reverse(ListItems(self).begin(), ListItems(self).end());
  return Value();
}

Value Copy(Interpreter& in, const Value& self, const Arguments&) {
  return in.MakeList(ListItems(self));
}

Value CountItem(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("count", arguments, {"value"}, 1);
  if (in.failed()) return Value();
  int64_t count = 0;
  for (const Value& item : ListItems(self)) count += in.Equal(item, *given[0]) ? 1 : 0;
  return Value(count);
}

Value IndexMethod(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("index", arguments, {"value"}, 1);
  if (in.failed()) return Value();
  const Values& items = ListItems(self);
  for (size_t i = 0; i < items.size(); ++i) {
    if (in.Equal(items[i], *given[0])) return Value(static_cast<int64_t>(i));
  }
  return in.Fail("index: the value is not in the list");
}

Value Keys(Interpreter& in, const Value& self, const Arguments&) {
  Values out;
  for (const Dict::Entry& entry : self.dict()->entries) out.push_back(entry.key);
  const Value view = in.MakeSequence(SequenceKind::kView, std::move(out));
  view.sequence()->name = "dict_keys";
  return view;
}

Value ValuesMethod(Interpreter& in, const Value& self, const Arguments&) {
  Values out;
  for (const Dict::Entry& entry : self.dict()->entries) out.push_back(entry.value);
  const Value view = in.MakeSequence(SequenceKind::kView, std::move(out));
  view.sequence()->name = "dict_values";
  return view;
}

Value ItemPairs(Interpreter& in, const Value& self, const Arguments&) {
  Values out;
  for (const Dict::Entry& entry : self.dict()->entries) {
    out.push_back(in.MakeSequence(SequenceKind::kTuple, {entry.key, entry.value}));
  }
  const Value view = in.MakeSequence(SequenceKind::kView, std::move(out));
  view.sequence()->name = "dict_items";
  return view;
}

Value Get(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("get", arguments, {"key", "default"}, 1);
  if (in.failed()) return Value();
  const Value* found = in.FindEntry(*self.dict(), *given[0]);
  if (found != nullptr) return *found;
  return given[1] ? *given[1] : Value();
}

bool SetMember(Interpreter& in, const Value& self, const Value& key, const Value& value) {
  if (!MayHold(in, self, value)) return false;
  in.SetEntry(self.dict(), key, value);
  return !in.failed();
}

Value Update(Interpreter& in, const Value& self, const Arguments& arguments) {
  for (const Value& more : arguments.values) {
    if (more.dict() == nullptr) return in.Fail("update: expected a dict");
    const std::vector<Dict::Entry> entries = more.dict()->entries;  // `more` may be self
    if (!in.Charge(entries.size() * sizeof(Dict::Entry))) return Value();
    for (const Dict::Entry& entry : entries) {
      if (!SetMember(in, self, entry.key, entry.value)) return Value();
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    if (!SetMember(in, self, in.MakeText(name, true), value)) return Value();
  }
  return Value();
}

Value SetDefault(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("setdefault", arguments, {"key", "default"}, 1);
  if (in.failed()) return Value();
  if (const Value* found = in.FindEntry(*self.dict(), *given[0])) return *found;
  const Value value = given[1] ? *given[1] : Value();
  SetMember(in, self, *given[0], value);
  return value;
}

Value PopKey(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("pop", arguments, {"key", "default"}, 1);
  if (in.failed()) return Value();
  Dict* dict = self.dict();
  if (!in.Step(dict->entries.size() / 4)) return Value();
  for (size_t i = 0; i < dict->entries.size(); ++i) {
    if (!in.Equal(dict->entries[i].key, *given[0])) continue;
    Value out = dict->entries[i].value;
    dict->Erase(i);
    return out;
  }
  return given[1] ? *given[1] : in.Fail("pop: the key is not in the dict");
}

Value ClearDict(Interpreter&, const Value& self, const Arguments&) {
  *self.dict() = Dict();
  return Value();
}

Value CopyDict(Interpreter& in, const Value& self, const Arguments&) {
  if (!in.Charge(self.dict()->entries.size() * sizeof(Dict::Entry))) return Value();
  Dict* copy = in.heap().NewDict();
  copy->entries = self.dict()->entries;
  return Value(copy);
}

constexpr std::array<NamedNative, 9> kListMethods = {{
    {"append", &Append},
    {"extend", &Extend},
    {"insert", &Insert},
    {"pop", &PopItem},
    {"clear", &Clear},
    {"reverse", &ReverseItems},
    {"copy", &Copy},
    {"count", &CountItem},
    {"index", &IndexMethod},
}};
constexpr std::array<NamedNative, 2> kTupleMethods = {
    {{"count", &CountItem}, {"index", &IndexMethod}}};
constexpr std::array<NamedNative, 9> kDictMethods = {{
    {"keys", &Keys},
    {"values", &ValuesMethod},
    {"items", &ItemPairs},
    {"get", &Get},
    {"update", &Update},
    {"setdefault", &SetDefault},
    {"pop", &PopKey},
    {"clear", &ClearDict},
    {"copy", &CopyDict},
}};

}  // namespace

Native FindListMethod(std::string_view name) { return FindIn(kListMethods, name); }
Native FindTupleMethod(std::string_view name) { return FindIn(kTupleMethods, name); }
Native FindDictMethod(std::string_view name) { return FindIn(kDictMethods, name); }

}  // namespace winnow::jinja
