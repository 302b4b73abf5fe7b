#include <algorithm>
#include <array>
#include <utility>

#include "jinja/interpreter.h"
#include "jinja/text_functions.h"
#include "jinja/unicode.h"

// Methods of str that return a text or a list.
namespace winnow::jinja {
namespace {

const Text& SelfText(const Value& self) { return *self.text(); }

// An argument that must be a text; fails otherwise.
Text TextIn(Interpreter& in, const char* method, const std::optional<Value>& argument) {
  if (argument && argument->text() != nullptr) return *argument->text();
  in.Fail(std::string(method) + ": expected a text, found " +
          (argument ? std::string(TypeName(*argument)) : "nothing"));
  return {};
}

// A search from the right compares at every position.
bool CountSearchSteps(Interpreter& in, const Text& text, const Text& what) {
  return in.Step(text.size() / 256 * (what.size() / 16 + 1));
}

int64_t NumberIn(Interpreter& in, const char* method, const std::optional<Value>& argument,
                 int64_t otherwise) {
  if (!argument) return otherwise;
  if (argument->whole()) return *argument->whole();
  in.Fail(std::string(method) + ": expected a number, found " + std::string(TypeName(*argument)));
  return otherwise;
}

Value Strip(Interpreter& in, const Value& self, const Arguments& arguments, bool left, bool right) {
  const auto given = in.Bind("strip", arguments, {"chars"});
  if (in.failed()) return Value();
  if (!given[0] || given[0]->is_none()) {
    return in.Make(Stripped(SelfText(self), std::nullopt, left, right));
  }
  const Text set = TextIn(in, "strip", given[0]);
  if (in.failed() || !in.Step(SelfText(self).size() / 256 * (set.size() / 4 + 1))) return Value();
  return in.Make(Stripped(SelfText(self), set.view(), left, right));
}
Value StripBoth(Interpreter& in, const Value& self, const Arguments& a) {
  return Strip(in, self, a, true, true);
}
Value StripLeft(Interpreter& in, const Value& self, const Arguments& a) {
  return Strip(in, self, a, true, false);
}
Value StripRight(Interpreter& in, const Value& self, const Arguments& a) {
  return Strip(in, self, a, false, true);
}

Value Upper(Interpreter& in, const Value& self, const Arguments&) {
  return in.Make(Uppercase(SelfText(self)));
}
Value Lower(Interpreter& in, const Value& self, const Arguments&) {
  return in.Make(Lowercase(SelfText(self)));
}
Value Title(Interpreter& in, const Value& self, const Arguments&) {
  return in.Make(Titled(SelfText(self)));
}
Value Capitalize(Interpreter& in, const Value& self, const Arguments&) {
  return in.Make(Capitalized(SelfText(self)));
}

Value Replace(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("replace", arguments, {"old", "new", "count"}, 2);
  if (in.failed()) return Value();
  const Text old = TextIn(in, "replace", given[0]);
  const Text by = TextIn(in, "replace", given[1]);
  const int64_t count = NumberIn(in, "replace", given[2], -1);
  if (in.failed()) return Value();
  return Value(Replaced(in, SelfText(self), old, by, count));
}

Value TextList(Interpreter& in, std::vector<Text> texts) {
  std::vector<Value> out;
  out.reserve(texts.size());
  for (Text& text : texts) out.push_back(in.Make(std::move(text)));
  return in.MakeList(std::move(out));
}

Value SplitWith(Interpreter& in, const Value& self, const Arguments& arguments, bool from_right) {
  const auto given = in.Bind("split", arguments, {"sep", "maxsplit"});
  if (in.failed()) return Value();
  std::optional<Text> separator;
  if (given[0] && !given[0]->is_none()) {
    separator = TextIn(in, "split", given[0]);
    if (!in.failed() && separator->empty()) in.Fail("split: empty separator");
  }
  const int64_t max_splits = NumberIn(in, "split", given[1], -1);
  if (in.failed() || !in.Charge(SelfText(self).size() * 2)) return Value();
  if (from_right && separator && !CountSearchSteps(in, SelfText(self), *separator)) return Value();
  return TextList(in, from_right ? SplitTextFromRight(SelfText(self), separator, max_splits)
                                 : SplitText(SelfText(self), separator, max_splits));
}
Value Split(Interpreter& in, const Value& self, const Arguments& a) {
  return SplitWith(in, self, a, false);
}
Value RSplit(Interpreter& in, const Value& self, const Arguments& a) {
  return SplitWith(in, self, a, true);
}

Value SplitLines(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("splitlines", arguments, {"keepends"});
  if (in.failed()) return Value();
  return TextList(in, Lines(SelfText(self), given[0] && in.Truth(*given[0])));
}

Value PartitionAt(Interpreter& in, const Value& self, const Arguments& arguments, bool last) {
  const auto given = in.Bind("partition", arguments, {"sep"}, 1);
  const Text separator = in.failed() ? Text() : TextIn(in, "partition", given[0]);
  if (!in.failed() && separator.empty()) in.Fail("partition: empty separator");
  if (in.failed()) return Value();
  const Text& text = SelfText(self);
  if (last && !CountSearchSteps(in, text, separator)) return Value();
  const size_t at =
      last ? text.view().rfind(separator.view()) : FindBytes(text.view(), separator.view(), 0);
  if (at == std::string_view::npos) {
    const Value nothing = in.MakeText("", true);
    return in.MakeSequence(SequenceKind::kTuple, last ? std::vector<Value>{nothing, nothing, self}
                                                      : std::vector<Value>{self, nothing, nothing});
  }
  const size_t after = at + separator.size();
  return in.MakeSequence(SequenceKind::kTuple,
                         {in.Make(text.Slice(0, at)), in.Make(text.Slice(at, after)),
                          in.Make(text.Slice(after, text.size()))});
}
Value Partition(Interpreter& in, const Value& self, const Arguments& a) {
  return PartitionAt(in, self, a, false);
}
Value RPartition(Interpreter& in, const Value& self, const Arguments& a) {
  return PartitionAt(in, self, a, true);
}

Value RemovePrefix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("removeprefix", arguments, {"prefix"}, 1);
  const Text prefix = in.failed() ? Text() : TextIn(in, "removeprefix", given[0]);
  const Text& text = SelfText(self);
  if (in.failed() || !text.view().starts_with(prefix.view())) return self;
  return in.Make(text.Slice(prefix.size(), text.size()));
}

Value RemoveSuffix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("removesuffix", arguments, {"suffix"}, 1);
  const Text suffix = in.failed() ? Text() : TextIn(in, "removesuffix", given[0]);
  const Text& text = SelfText(self);
  if (in.failed() || !text.view().ends_with(suffix.view())) return self;
  return in.Make(text.Slice(0, text.size() - suffix.size()));
}

Value JoinItems(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("join", arguments, {"iterable"}, 1);
  if (in.failed()) return Value();
  const auto items = in.Iterate(*given[0]);
  if (!items) return Value();
  Text out;
  for (size_t i = 0; i < items->size(); ++i) {
    const Text* item = (*items)[i].text();
    if (item == nullptr) {
      return in.Fail("join: item " + std::to_string(i) + " is of type " +
                     std::string(TypeName((*items)[i])) + ", expected a text");
    }
    if (!in.Charge(SelfText(self).size() + item->size())) return Value();
    if (i > 0) out.Append(SelfText(self));
    out.Append(*item);
  }
  return Value(std::move(out));
}

// Pads to a width, with the text on the left, on the right or in the middle.
Value Justified(Interpreter& in, const Value& self, const Arguments& arguments, char how) {
  const auto given = in.Bind("justify", arguments, {"width", "fillchar"}, 1);
  if (in.failed()) return Value();
  const int64_t width = NumberIn(in, "justify", given[0], 0);
  const Text fill = given[1] ? TextIn(in, "justify", given[1]) : Text(" ", true);
  const auto length = in.Length(self);
  if (in.failed()) return Value();
  if (CountCharacters(fill.view()) != 1) return in.Fail("expected one character to fill with");
  const int64_t missing = width - static_cast<int64_t>(*length);
  if (missing <= 0) return self;
  if (!in.Charge(static_cast<size_t>(missing) * fill.size())) return Value();
  const int64_t middle = missing / 2 + (missing & width & 1);
  const int64_t left = how == 'l' ? 0 : how == 'r' ? missing : middle;
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(SelfText(self));
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return Value(std::move(out));
}
Value LJust(Interpreter& in, const Value& self, const Arguments& a) {
  return Justified(in, self, a, 'l');
}
Value RJust(Interpreter& in, const Value& self, const Arguments& a) {
  return Justified(in, self, a, 'r');
}
Value Center(Interpreter& in, const Value& self, const Arguments& a) {
  return Justified(in, self, a, 'c');
}

Value ZFill(Interpreter& in, const Value& self, const Arguments& arguments) {
  const auto given = in.Bind("zfill", arguments, {"width"}, 1);
  if (in.failed()) return Value();
  const int64_t width = NumberIn(in, "zfill", given[0], 0);
  const auto length = in.Length(self);
  if (in.failed() || width <= static_cast<int64_t>(*length)) return self;
  const auto missing = static_cast<size_t>(width) - *length;
  if (!in.Charge(missing)) return Value();
  const Text& text = SelfText(self);
  const size_t sign = !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+') ? 1 : 0;
  Text out = text.Slice(0, sign);
  out.Append(std::string(missing, '0'), true);
  out.AppendSlice(text, sign, text.size());
  return Value(std::move(out));
}

Value Format(Interpreter& in, const Value& self, const Arguments& arguments) {
  return BraceFormat(in, SelfText(self), arguments);
}

constexpr std::array<NamedNative, 22> kTextMethods = {{
    {"strip", &StripBoth},
    {"lstrip", &StripLeft},
    {"rstrip", &StripRight},
    {"upper", &Upper},
    {"lower", &Lower},
    {"casefold", &Lower},
    {"title", &Title},
    {"capitalize", &Capitalize},
    {"replace", &Replace},
    {"split", &Split},
    {"rsplit", &RSplit},
    {"splitlines", &SplitLines},
    {"partition", &Partition},
    {"rpartition", &RPartition},
    {"join", &JoinItems},
    {"removeprefix", &RemovePrefix},
    {"removesuffix", &RemoveSuffix},
    {"ljust", &LJust},
    {"rjust", &RJust},
    {"center", &Center},
    {"zfill", &ZFill},
    {"format", &Format},
}};

}  // namespace

Native FindTextMethod(std::string_view name) {
  if (const Native found = FindIn(kTextMethods, name)) return found;
  return FindTextTest(name);
}

Value Interpreter::FindMethod(const Value& value, std::string_view name) {
  Native found = nullptr;
  if (value.text() != nullptr) {
    found = FindTextMethod(name);
  } else if (value.dict() != nullptr) {
    found = FindDictMethod(name);
  } else if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind == SequenceKind::kList) found = FindListMethod(name);
    if (sequence->kind == SequenceKind::kTuple || sequence->kind == SequenceKind::kRange) {
      found = FindTupleMethod(name);
    }
  }
  if (found == nullptr) return Nothing("");
  return Value(static_cast<Object*>(heap_.Own(std::make_unique<NativeObject>(name, found, value))));
}

}  // namespace winnow::jinja
