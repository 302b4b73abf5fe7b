#include <array>
#include <ctime>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/loop.h"

// Global functions.
namespace winnow::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // as in Python's sandbox

Value NewObject(Interpreter& in, std::unique_ptr<Object> object) {
  return Value(in.heap().Own(std::move(object)));
}

Value Range(Interpreter& in, const Value&, const Arguments& arguments) {
  const auto given = in.Bind("range", arguments, {"start", "stop", "step"}, 1);
  if (in.failed()) return Value();
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < 3; ++i) {
    if (!given[i]) continue;
    if (!given[i]->whole()) {
      return in.Fail("range: expected numbers, found " + std::string(TypeName(*given[i])));
    }
    numbers[i] = *given[i]->whole();
  }
  if (!given[1]) {
    numbers[1] = numbers[0];
    numbers[0] = 0;
  }
  const auto [start, stop, step] = numbers;
  if (step == 0) return in.Fail("range: the step is 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return in.Fail("range: more than " + std::to_string(kMaxRange) + " numbers");
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const Value range = in.MakeSequence(SequenceKind::kRange, std::move(items));
  range.sequence()->name = std::to_string(start) + ", " + std::to_string(stop) +
                           (step == 1 ? "" : ", " + std::to_string(step));
  return range;
}

// dict(a=1), dict({...}), dict([(key, value), ...]).
Value MakeDict(Interpreter& in, const Value&, const Arguments& arguments) {
  Dict* dict = in.heap().NewDict();
  if (arguments.values.size() > 1) return in.Fail("dict takes at most 1 argument");
  for (const Value& from : arguments.values) {
    if (const Dict* other = from.dict()) {
      for (const Dict::Entry& entry : other->entries) in.SetEntry(dict, entry.key, entry.value);
      continue;
    }
    const auto pairs = in.Iterate(from);
    if (!pairs) return Value();
    for (const Value& value : *pairs) {
      const auto pair = in.Iterate(value);
      if (!pair) return Value();
      if (pair->size() != 2) return in.Fail("dict: expected pairs of a key and a value");
      in.SetEntry(dict, (*pair)[0], (*pair)[1]);
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    in.SetEntry(dict, in.MakeText(name, true), value);
  }
  return Value(dict);
}

Value MakeNamespace(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Value values = MakeDict(in, self, arguments);
  if (in.failed()) return Value();
  return NewObject(in, std::make_unique<Namespace>(values.dict()));
}

class Joiner final : public Object {
 public:
  explicit Joiner(Text separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  std::string Repr() const override { return "<Joiner>"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& in, const Arguments&) override {
    return std::exchange(used_, true) ? in.Make(separator_) : in.MakeText("", true);
  }

 private:
  Text separator_;
  bool used_ = false;
};

Value MakeJoiner(Interpreter& in, const Value&, const Arguments& arguments) {
  const auto given = in.Bind("joiner", arguments, {"sep"});
  if (in.failed()) return Value();
  return NewObject(in, std::make_unique<Joiner>(given[0] ? in.Str(*given[0]) : Text(", ", true)));
}

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::string Repr() const override { return "<Cycler>"; }
  Value Attribute(Interpreter& in, std::string_view name) override;
  Value Next() {
    const Value out = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return out;
  }
  Value Reset() {
    at_ = 0;
    return Value();
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

Value CyclerNext(Interpreter&, const Value& self, const Arguments&) {
  return static_cast<Cycler*>(self.object())->Next();
}
Value CyclerReset(Interpreter&, const Value& self, const Arguments&) {
  return static_cast<Cycler*>(self.object())->Reset();
}

Value Cycler::Attribute(Interpreter& in, std::string_view name) {
  if (name == "current") return items_[at_];
  const Value self(static_cast<Object*>(this));
  if (name == "next")
    return NewObject(in, std::make_unique<NativeObject>("next", &CyclerNext, self));
  if (name == "reset") {
    return NewObject(in, std::make_unique<NativeObject>("reset", &CyclerReset, self));
  }
  return Object::Attribute(in, name);
}

Value MakeCycler(Interpreter& in, const Value&, const Arguments& arguments) {
  if (arguments.values.empty()) return in.Fail("cycler: at least one item has to be provided");
  return NewObject(in, std::make_unique<Cycler>(arguments.values));
}

Value RaiseException(Interpreter& in, const Value&, const Arguments& arguments) {
  const auto given = in.Bind("raise_exception", arguments, {"message"}, 1);
  if (in.failed()) return Value();
  return in.Refuse("the template refuses: " + in.Str(*given[0]).bytes());
}

Value Now(Interpreter& in, const Value&, const Arguments& arguments) {
  const auto given = in.Bind("strftime_now", arguments, {"format"}, 1);
  if (in.failed()) return Value();
  if (given[0]->text() == nullptr || given[0]->text()->size() > 1000) {
    return in.Fail("strftime_now: expected a text of at most 1000 bytes as format");
  }
  return in.Make(StrftimeNow(in.options(), *given[0]->text()));
}

constexpr std::array<NamedNative, 7> kGlobals = {{
    {"range", &Range},
    {"dict", &MakeDict},
    {"namespace", &MakeNamespace},
    {"joiner", &MakeJoiner},
    {"cycler", &MakeCycler},
    {"raise_exception", &RaiseException},
    {"strftime_now", &Now},
}};

}  // namespace

Native FindGlobal(std::string_view name) { return FindIn(kGlobals, name); }

Value Object::Call(Interpreter& interpreter, const Arguments&) {
  return interpreter.Fail("a " + std::string(type_name()) + " cannot be called");
}

Value Object::Attribute(Interpreter& interpreter, std::string_view name) {
  return interpreter.Nothing("'" + std::string(type_name()) + " object' has no attribute '" +
                             std::string(name) + "'");
}

Text StrftimeNow(const RenderOptions& options, const Text& format) {
  const auto local = static_cast<time_t>(options.unix_time + options.utc_offset_seconds);
  std::tm time = {};
  if (gmtime_r(&local, &time) == nullptr) return {};
  time.tm_gmtoff = options.utc_offset_seconds;
  // One more character: strftime returns 0 for an empty text and for one that did not fit.
  const std::string padded = format.bytes() + "|";
  std::string out(padded.size() * 32 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), padded.c_str(), &time));
  if (!out.empty()) out.pop_back();
  return Text(std::move(out), format.trusted());
}

}  // namespace winnow::jinja
