#include <algorithm>

#include "base/nearest.h"
#include "commands.h"
#include "compression/registry.h"
#include "options.h"
#include "report/record.h"
#include "table.h"

namespace winnow::apps {
namespace {

using compression::MethodEntry;
using compression::MethodPtr;
using compression::Parameter;
using compression::Traits;

constexpr size_t kNameColumn = 17;

std::string PhasesText(const Traits& traits) {
  if (traits.attention.Selects()) return "selects in every step";
  const compression::DecisionPolicy& decisions = traits.decisions;
  if (!decisions.Evicts()) return "none";
  if (!decisions.Evicts(compression::Phase::kPrefill)) return "decode";
  return decisions.evicts_in_decode ? "prefill, decode" : "prefill; grows while generating";
}

std::string PositionsText(const compression::StoragePolicy& storage) {
  switch (storage.positions) {
    case compression::PositionMode::kReassigned:
      return "reassigned";
    case compression::PositionMode::kCapped:
      return storage.distance_cap == 0
                 ? "capped at the distance the model was trained for"
                 : "capped at a distance of " + std::to_string(storage.distance_cap);
    case compression::PositionMode::kOriginal:
    case compression::PositionMode::kText:
      break;
  }
  return "original";
}

std::string TapsText(const kernels::TapSpec& taps) {
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (taps.last_rows == 1) add("the last row");
  if (taps.last_rows > 1) add("the last " + std::to_string(taps.last_rows) + " rows");
  if (taps.last_sums == 1) add("the last row");
  if (taps.last_sums > 1) add("sums over the last " + std::to_string(taps.last_sums) + " rows");
  if (taps.column_sums) add("column sums");
  if (taps.square_sums) add("column sums of squares");
  return text.empty() ? "nothing" : text;
}

std::string PrefillTapsText(const compression::Needs& needs) {
  if (needs.last_sums_share == 0) return TapsText(needs.prefill);
  kernels::TapSpec others = needs.prefill;
  others.last_sums = 0;
  return "sums over the last " + compression::ShortestText(100 * needs.last_sums_share) +
         " % of the rows" + (others.any() ? ", " + TapsText(others) : "");
}

std::string BudgetText(const compression::BudgetPolicy& budget) {
  if (!budget.needed) return "none needed";
  return "needed, " + std::to_string(budget.min) + " slots or more" +
         (budget.held ? "" : "; the layers together may keep more");
}

std::string RangeText(const Parameter& parameter) {
  if (!parameter.choices.empty()) {
    std::string text;
    for (const std::string& choice : parameter.choices) text += (text.empty() ? "" : ", ") + choice;
    return (parameter.type == "part" ? "parts: " : "one of ") + text;
  }
  if (parameter.type == "switch") return "true or false";
  if (parameter.type == "count or share") return parameter.type;
  const std::string range = compression::ShortestText(parameter.range.min) + " to " +
                            compression::ShortestText(parameter.range.max);
  return (parameter.type == "integers" ? "integers joined by '/', each " : parameter.type + ", ") +
         range;
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string ShortBudget(const Traits& traits) {
  if (traits.spec == "full") return "";
  if (traits.budget.needed) return std::to_string(traits.budget.min) + " or more";
  return traits.budget.held ? "its own, or a limit" : "its own";
}

void PrintOverview() {
  std::vector<report::Record> rows;
  for (const MethodEntry& entry : compression::Methods()) {
    const auto method = compression::MakeMethod(entry.name);
    rows.push_back({{"method", entry.name},
                    {"what stays", entry.summary},
                    {"entries", method ? ShortBudget((*method)->traits()) : ""},
                    {"source", entry.source}});
  }
  PrintTable(rows, 1);
  Print(
      "\nwinnow methods NAME   parameters and what the method needs\n"
      "winnow run -m model.gguf -f long.txt --kv-method NAME:PARAMETER=VALUE --kv-size 1024\n");
}

std::string Details(const MethodEntry& entry, const MethodPtr& method) {
  const Traits& traits = method->traits();
  const compression::Needs needs = method->needs();
  std::string text = std::string(entry.name) + ": " + std::string(entry.summary) + "\n\n";
  const auto line = [&](const char* what, const std::string& value) {
    text += Padded(what, kNameColumn) + value + "\n";
  };
  line("source", std::string(entry.source));
  line("compresses in", PhasesText(traits));
  line("positions", PositionsText(traits.storage));
  line("budget", BudgetText(traits.budget));
  line("question",
       method->needs_question() ? "ends the prompt: what it attends to stays" : "may come later");
  line("attention",
       "in prefill " + PrefillTapsText(needs) + "; in decode " + TapsText(needs.decode));
  line("state", std::to_string(needs.state.slot_bytes()) + " bytes per slot, " +
                    std::to_string(needs.state.n_head_numbers) + " numbers per head, " +
                    std::to_string(needs.state.n_layer_numbers) + " per layer");
  const std::vector<Parameter> parameters = entry.parameters();
  text += parameters.empty() ? "\nNo parameters.\n" : "\nParameters:\n";
  for (const Parameter& parameter : parameters) {
    text += "  " + Padded(parameter.name + "=" + parameter.default_value, 24) + parameter.help +
            "\n" + std::string(26, ' ') + "(" + RangeText(parameter) + ")\n";
  }
  return text;
}

report::Record ToRecord(const MethodEntry& entry, const MethodPtr& method) {
  const Traits& traits = method->traits();
  const compression::Needs needs = method->needs();
  const auto taps = [](const kernels::TapSpec& spec) {
    return report::Record{{"last_rows", spec.last_rows},
                          {"last_sums", spec.last_sums},
                          {"column_sums", spec.column_sums},
                          {"square_sums", spec.square_sums}};
  };
  report::List parameters;
  for (const Parameter& parameter : entry.parameters()) {
    report::Record record = {{"name", parameter.name},
                             {"type", parameter.type},
                             {"default", parameter.default_value},
                             {"help", parameter.help}};
    if (!parameter.choices.empty()) record.Add("choices", report::MakeList(parameter.choices));
    if (parameter.range.min != parameter.range.max) {
      record.Add("min", parameter.range.min);
      record.Add("max", parameter.range.max);
    }
    parameters.emplace_back(std::move(record));
  }
  return {{"name", entry.name},
          {"summary", entry.summary},
          {"source", entry.source},
          {"compresses_prefill", traits.decisions.Evicts(compression::Phase::kPrefill)},
          {"evicts_in_decode", traits.decisions.evicts_in_decode},
          {"positions", PositionsText(traits.storage)},
          {"needs_budget", traits.budget.needed},
          {"holds_budget", traits.budget.held},  // in all layers together
          {"min_budget", traits.budget.min},
          {"needs_question", method->needs_question()},
          {"attention",
           report::Record{{"prefill", taps(needs.prefill)}, {"decode", taps(needs.decode)}}},
          {"parameters", std::move(parameters)}};
}

// Error: no such method.
Result<const MethodEntry*> Find(const std::string& name) {
  std::vector<std::string_view> names;
  for (const MethodEntry& entry : compression::Methods()) {
    if (entry.name == name) return &entry;
    names.push_back(entry.name);
  }
  const std::string_view nearest = NearestWord(name, names);
  return Error{"no method '" + name + "'" +
               (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?")};
}

}  // namespace

int Methods(Arguments arguments) {
  bool json = false;
  FlagTable table("methods", "[NAME] [flags]",
                  "Lists the methods that compress the cache, or says all about one.");
  table.Switch({"--json"}, "a JSON list, or one JSON object", &json);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
  std::vector<std::string> names;
  if (const auto over = ParseFlags(table, arguments, &names)) return *over;
  if (names.size() > 1) return Misuse("methods", "expected one method, got " + names[1] + " too");

  std::vector<const MethodEntry*> entries;
  if (names.empty()) {
    for (const MethodEntry& entry : compression::Methods()) entries.push_back(&entry);
  } else {
    const auto entry = Find(names[0]);
    if (!entry) return Misuse("methods", entry.error().message);
    entries.push_back(*entry);
  }
  if (!json && names.empty()) {
    PrintOverview();
    return FinishOutput();
  }
  report::List list;
  for (const MethodEntry* entry : entries) {
    const auto method = compression::MakeMethod(entry->name);
    if (!method) return Fail(method.error());
    if (json) {
      list.emplace_back(ToRecord(*entry, *method));
    } else {
      Print(Details(*entry, *method));
    }
  }
  if (json) Print(report::ToJson(names.empty() ? report::Value(list) : list.front(), 2) + "\n");
  return FinishOutput();
}

}  // namespace winnow::apps
