#include <algorithm>
#include <array>
#include <utility>

#include "jinja/interpreter.h"

// Filters for lists and dicts.
namespace winnow::jinja {
namespace {

using Values = std::vector<Value>;

bool Has(const std::optional<Value>& argument) { return argument && !argument->is_none(); }

Value ToList(Interpreter& in, const Value& value, const Arguments&) {
  auto items = in.Iterate(value);
  return items ? in.MakeList(*std::move(items)) : Value();
}

Value First(Interpreter& in, const Value& value, const Arguments&) {
  const auto items = in.Iterate(value);
  if (!items) return Value();
  return items->empty() ? in.Nothing("No first item, sequence was empty.") : items->front();
}

Value Last(Interpreter& in, const Value& value, const Arguments&) {
  if (value.sequence() != nullptr && value.sequence()->kind == SequenceKind::kGenerator) {
    return in.Fail("'generator' object is not reversible");
  }
  const auto items = in.Iterate(value);
  if (!items) return Value();
  return items->empty() ? in.Nothing("No last item, sequence was empty.") : items->back();
}

Value Items(Interpreter& in, const Value& value, const Arguments&) {
  if (!value.is_undefined() && value.dict() == nullptr) {
    return in.Fail("items: a value of type " + std::string(TypeName(value)) + ", expected a dict");
  }
  Values out;
  if (const Dict* dict = value.dict()) {
    for (const Dict::Entry& entry : dict->entries) {
      out.push_back(in.MakeSequence(SequenceKind::kTuple, {entry.key, entry.value}));
    }
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

Value DictSort(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (in.failed()) return Value();
  const std::string by = given[1] ? in.Str(*given[1]).bytes() : "key";
  if (value.dict() == nullptr || (by != "key" && by != "value")) {
    return in.Fail("dictsort: expected a dict, by 'key' or 'value'");
  }
  Values pairs;
  Values keys;
  for (const Dict::Entry& entry : value.dict()->entries) {
    pairs.push_back(in.MakeSequence(SequenceKind::kTuple, {entry.key, entry.value}));
    const Value& key = by == "key" ? entry.key : entry.value;
    keys.push_back(given[0] && in.Truth(*given[0]) ? key : IgnoringCase(in, key));
  }
  return in.MakeList(Sorted(in, std::move(pairs), keys, given[2] && in.Truth(*given[2])));
}

// The key by which sort, unique, min and max compare: the item or an attribute of it.
Value SortKey(Interpreter& in, const Value& item, const std::optional<Value>& attribute,
              bool case_sensitive) {
  const Value key = Has(attribute) ? AttributePath(in, item, *attribute) : item;
  return case_sensitive ? key : IgnoringCase(in, key);
}

Value Sort(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  const bool case_sensitive = given[1] && in.Truth(*given[1]);
  Values keys;
  for (const Value& item : *items) {
    // Attributes separated by commas are compared one after the other.
    Values parts;
    if (Has(given[2]) && given[2]->text() != nullptr) {
      std::string_view rest = given[2]->text()->view();
      for (size_t comma = 0; comma != std::string_view::npos;) {
        comma = rest.find(',');
        parts.push_back(
            SortKey(in, item, in.MakeText(rest.substr(0, comma), true), case_sensitive));
        if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
      }
    } else {
      parts.push_back(SortKey(in, item, given[2], case_sensitive));
    }
    keys.push_back(in.MakeList(std::move(parts)));
    if (in.failed()) return Value();
  }
  return in.MakeList(Sorted(in, *std::move(items), keys, given[0] && in.Truth(*given[0])));
}

Value Unique(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("unique", arguments, {"case_sensitive", "attribute"});
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  Values out;
  Dict* seen = in.heap().NewDict();
  for (const Value& item : *items) {
    const Value key = SortKey(in, item, given[1], given[0] && in.Truth(*given[0]));
    if (in.FindEntry(*seen, key) == nullptr) out.push_back(item);
    in.SetEntry(seen, key, Value());
    if (in.failed()) return Value();
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

Value Extreme(Interpreter& in, const Value& value, const Arguments& arguments, bool largest) {
  const auto given = in.Bind(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  if (items->empty()) return in.Nothing("No aggregated item, sequence was empty.");
  const bool case_sensitive = given[0] && in.Truth(*given[0]);
  Value best = items->front();
  Value best_key = SortKey(in, best, given[1], case_sensitive);
  for (size_t i = 1; i < items->size() && !in.failed(); ++i) {
    Value key = SortKey(in, (*items)[i], given[1], case_sensitive);
    if (largest ? in.Less(best_key, key) : in.Less(key, best_key)) {
      best = (*items)[i];
      best_key = std::move(key);
    }
  }
  return best;
}

Value Min(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, false);
}
Value Max(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, true);
}

Value Sum(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("sum", arguments, {"attribute", "start"});
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  Value total = given[1] ? *given[1] : Value(int64_t{0});
  if (total.text() != nullptr) return in.Fail("sum: texts cannot be added up, join does it");
  for (const Value& item : *items) {
    total = in.Operate("+", total, Has(given[0]) ? AttributePath(in, item, *given[0]) : item);
    if (in.failed()) return Value();
  }
  return total;
}

Value Reverse(Interpreter& in, const Value& value, const Arguments&) {
  if (value.text() != nullptr) {
    return in.Slice(value, Value(), Value(), Value(int64_t{-1}));
  }
  auto items = in.Iterate(value);
  if (!items) return Value();
  std::reverse(items->begin(), items->end());
  return in.MakeSequence(SequenceKind::kGenerator, *std::move(items));
}

Value Join(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("join", arguments, {"d", "attribute"});
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  const Text between = given[0] ? in.Str(*given[0]) : Text();
  Text out;
  for (size_t i = 0; i < items->size(); ++i) {
    const Text text =
        in.Str(Has(given[1]) ? AttributePath(in, (*items)[i], *given[1]) : (*items)[i]);
    if (!in.Charge(between.size() + text.size())) return Value();
    if (i > 0) out.Append(between);
    out.Append(text);
  }
  return Value(std::move(out));
}

// False values (none, 0) have no items.
std::optional<Values> ItemsIfAny(Interpreter& in, const Value& value) {
  return in.Truth(value) ? in.Iterate(value) : Values();
}

// Applies a filter to every item, or takes an attribute of it.
Value Map(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto items = ItemsIfAny(in, value);
  if (!items) return Value();
  Values out;
  if (arguments.values.empty()) {
    const auto given = in.Bind("map", arguments, {"attribute", "default"}, 1);
    if (in.failed()) return Value();
    for (const Value& item : *items) {
      const Value found = AttributePath(in, item, *given[0]);
      if (in.failed()) return Value();
      out.push_back(found.is_undefined() && Has(given[1]) ? *given[1] : found);
    }
  } else {
    const Arguments rest = {{arguments.values.begin() + 1, arguments.values.end()},
                            arguments.keywords};
    const std::string filter = in.Str(arguments.values[0]).bytes();
    for (const Value& item : *items) {
      out.push_back(in.CallFilter(filter, item, rest));
      if (in.failed()) return Value();
    }
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

// The items, or those by an attribute, for which a test returns `wanted`.
Value Chosen(Interpreter& in, const Value& value, const Arguments& arguments, bool by_attribute,
             bool wanted) {
  const auto items = ItemsIfAny(in, value);
  if (!items) return Value();
  Values out;
  const size_t n_fixed = by_attribute ? 1 : 0;
  if (arguments.values.size() < n_fixed) return in.Fail("missing the name of an attribute");
  const bool has_test = arguments.values.size() > n_fixed;
  Arguments rest;
  std::string test;
  if (has_test) {
    test = in.Str(arguments.values[n_fixed]).bytes();
    rest.values.assign(arguments.values.begin() + static_cast<std::ptrdiff_t>(n_fixed) + 1,
                       arguments.values.end());
    rest.keywords = arguments.keywords;
  }
  for (const Value& item : *items) {
    const Value what = by_attribute ? AttributePath(in, item, arguments.values[0]) : item;
    if (in.failed()) return Value();
    const bool holds = has_test ? in.CallTest(test, what, rest) : in.Truth(what);
    if (in.failed()) return Value();
    if (holds == wanted) out.push_back(item);
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

Value Select(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Chosen(in, value, arguments, false, true);
}
Value Reject(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Chosen(in, value, arguments, false, false);
}
Value SelectAttr(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Chosen(in, value, arguments, true, true);
}
Value RejectAttr(Interpreter& in, const Value& value, const Arguments& arguments) {
  return Chosen(in, value, arguments, true, false);
}

Value Batch(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("batch", arguments, {"linecount", "fill_with"}, 1);
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  const auto size = given[0]->whole();
  if (!size || *size < 1) return in.Fail("batch: expected a number of at least 1");
  Values out;
  for (size_t i = 0; i < items->size(); i += static_cast<size_t>(*size)) {
    const size_t end = items->size() - i < static_cast<size_t>(*size)
                           ? items->size()
                           : i + static_cast<size_t>(*size);
    Values row(items->begin() + static_cast<std::ptrdiff_t>(i),
               items->begin() + static_cast<std::ptrdiff_t>(end));
    if (Has(given[1])) {
      const size_t missing = static_cast<size_t>(*size) - row.size();
      if (!in.Charge(missing * sizeof(Value))) return Value();
      row.insert(row.end(), missing, *given[1]);
    }
    out.push_back(in.MakeList(std::move(row)));
    if (end == items->size()) break;
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

Value SliceInto(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("slice", arguments, {"slices", "fill_with"}, 1);
  const auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  const auto n = given[0]->whole();
  if (!n || *n < 1) return in.Fail("slice: expected a number of at least 1");
  const auto n_slices = static_cast<size_t>(*n);
  const size_t size = items->size() / n_slices;
  const size_t n_longer = items->size() % n_slices;
  if (!in.Charge(n_slices * sizeof(Sequence))) return Value();
  Values out;
  auto at = items->begin();
  for (size_t i = 0; i < n_slices && in.Step(); ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(size + (i < n_longer ? 1 : 0));
    Values row(at, end);
    if (Has(given[1]) && i >= n_longer) row.push_back(*given[1]);
    out.push_back(in.MakeList(std::move(row)));
    at = end;
  }
  return in.MakeSequence(SequenceKind::kGenerator, std::move(out));
}

Value GroupBy(Interpreter& in, const Value& value, const Arguments& arguments) {
  const auto given = in.Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  auto items = in.Iterate(value);
  if (in.failed() || !items) return Value();
  const bool case_sensitive = given[2] && in.Truth(*given[2]);
  const auto key_of = [&](const Value& item) {
    Value key = AttributePath(in, item, *given[0]);
    return key.is_undefined() && Has(given[1]) ? *given[1] : key;
  };
  Values keys;
  for (const Value& item : *items) {
    keys.push_back(case_sensitive ? key_of(item) : IgnoringCase(in, key_of(item)));
    if (in.failed()) return Value();
  }
  const Values sorted = Sorted(in, *std::move(items), keys, false);
  Values out;
  Sequence* group = nullptr;
  Value last;
  for (const Value& item : sorted) {
    const Value key = case_sensitive ? key_of(item) : IgnoringCase(in, key_of(item));
    if (in.failed()) return Value();
    if (group == nullptr || !in.Equal(key, last)) {
      const Value list = in.MakeList({});
      group = list.sequence();
      out.push_back(in.MakeSequence(SequenceKind::kTuple, {key_of(item), list}));
      last = key;
    }
    group->items.push_back(item);
  }
  return in.MakeList(std::move(out));
}

constexpr std::array<NamedNative, 20> kListFilters = {{
    {"list", &ToList},
    {"first", &First},
    {"last", &Last},
    {"items", &Items},
    {"dictsort", &DictSort},
    {"sort", &Sort},
    {"unique", &Unique},
    {"min", &Min},
    {"max", &Max},
    {"sum", &Sum},
    {"reverse", &Reverse},
    {"join", &Join},
    {"map", &Map},
    {"select", &Select},
    {"reject", &Reject},
    {"selectattr", &SelectAttr},
    {"rejectattr", &RejectAttr},
    {"batch", &Batch},
    {"slice", &SliceInto},
    {"groupby", &GroupBy},
}};

}  // namespace

Native FindListFilter(std::string_view name) { return FindIn(kListFilters, name); }

// Bottom-up merge sort: however comparisons turn out, every value is returned once.
std::vector<Value> Sorted(Interpreter& in, std::vector<Value> values,
                          const std::vector<Value>& keys, bool reverse) {
  const size_t n = values.size();
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::vector<size_t> merged(n);
  for (size_t width = 1; width < n && !in.failed(); width *= 2) {
    for (size_t begin = 0; begin < n; begin += 2 * width) {
      size_t left = begin;
      size_t right = std::min(begin + width, n);
      const size_t left_end = right;
      const size_t right_end = std::min(begin + 2 * width, n);
      for (size_t out = begin; out < right_end; ++out) {
        const bool take_right =
            right < right_end &&
            (left == left_end || (reverse ? in.Less(keys[order[left]], keys[order[right]])
                                          : in.Less(keys[order[right]], keys[order[left]])));
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  std::vector<Value> out;
  out.reserve(order.size());
  for (const size_t i : order) out.push_back(values[i]);
  return out;
}

}  // namespace winnow::jinja
