#include "eval/report/page_samples.h"

#include <algorithm>
#include <utility>

#include "eval/report/summary.h"

namespace winnow::eval {
namespace {

using report::Record;

constexpr size_t kMaxSamples = 60;  // shown per variant and part; --json has all

std::string ValueText(const report::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  const auto* list = std::get_if<report::List>(&value.data);
  if (list == nullptr) return report::ToJson(value);
  std::string all;
  for (const report::Value& item : *list) all += (all.empty() ? "" : " | ") + ValueText(item);
  return all;
}

// A sample under a variant as a row: its scores, the answer and the references.
Record SampleRow(const EvalResults& results, const EvaluatedSample& sample, size_t variant) {
  Record row = {{"sample", sample.id}};
  const auto& result = sample.results[variant];
  const bool ran = result && result->problem.empty();
  for (const Column& column : results.task->columns) {
    const auto& scores = ran ? result->outcome.scores : std::vector<Score>();
    const auto score = std::find_if(scores.begin(), scores.end(),
                                    [&](const Score& each) { return each.name == column.name; });
    const bool percent = column.kind == Column::Kind::kPercent;
    row.Add(column.title, score == scores.end()
                              ? report::Value()
                              : report::Value(score->value * (percent ? 100 : 1)));
  }
  constexpr std::pair<const char*, const char*> kDetails[] = {
      {"answer", "answer"}, {"references", "right"}, {"prompt_end", "end of the prompt"}};
  for (const auto& [name, title] : kDetails) {
    const report::Value* value = ran ? result->outcome.details.Find(name) : nullptr;
    row.Add(title, value == nullptr ? report::Value() : report::Value(ValueText(*value)));
  }
  row.Add("not run", result && !ran ? report::Value(result->problem) : report::Value());
  return row;
}

// The rows without columns that are empty in every row.
std::vector<Record> WithoutEmptyColumns(const std::vector<Record>& rows) {
  std::vector<Record> some(rows.size());
  for (size_t column = 0; column < rows.front().fields.size(); ++column) {
    const bool empty = std::all_of(rows.begin(), rows.end(), [&](const Record& row) {
      return std::holds_alternative<std::monostate>(row.fields[column].value.data);
    });
    if (empty) continue;
    for (size_t i = 0; i < rows.size(); ++i) some[i].fields.push_back(rows[i].fields[column]);
  }
  return some;
}

}  // namespace

std::string DetailsId(const EvalResults& results, size_t variant, const std::string& group) {
  const std::vector<std::string> groups = GroupNames(results);
  const auto place = std::find(groups.begin(), groups.end(), group) - groups.begin();
  return "v" + std::to_string(variant) + "g" + std::to_string(place);
}

void AddSamples(const EvalResults& results, report::Page& page) {
  const std::vector<std::string> groups = GroupNames(results);
  page.AddSection("Samples", "Questions and answers, by method and part.");
  for (size_t i = 0; i < results.variants.size(); ++i) {
    for (const std::string& group : groups) {
      std::vector<Record> rows;
      size_t n = 0;
      for (const EvaluatedSample& sample : results.samples) {
        if (sample.group != group || !sample.results[i]) continue;
        if (++n <= kMaxSamples) rows.push_back(SampleRow(results, sample, i));
      }
      if (rows.empty()) continue;
      const auto summary = SummarizeColumn(results, i, LeadingColumn(results, group), group);
      report::Fold fold = {.id = DetailsId(results, i, group),
                           .title = results.variants[i].Name() + ", " + group,
                           .text = "",
                           .rows = WithoutEmptyColumns(rows)};
      if (summary) {
        fold.title += ": " + CellText(*summary, LeadingColumn(results, group));
      }
      if (n > rows.size()) {
        fold.text = "The first " + std::to_string(rows.size()) + " of " + std::to_string(n) +
                    "; all are in the JSON of the results.";
      }
      page.AddDetails(std::move(fold));
    }
  }
}

std::vector<std::vector<std::string>> LinksOfRows(const EvalResults& results,
                                                  const std::vector<Record>& rows) {
  const std::vector<std::string> groups = GroupNames(results);
  const auto text = [](const Record& row, const char* name) {
    const report::Value* value = row.Find(name);
    const auto* found = value == nullptr ? nullptr : std::get_if<std::string>(&value->data);
    return found == nullptr ? std::string() : *found;
  };
  std::vector<std::vector<std::string>> links;
  for (const Record& row : rows) {
    const std::string types = text(row, "types");
    const auto variant =
        std::find_if(results.variants.begin(), results.variants.end(), [&](const Variant& each) {
          return each.method == text(row, "method") && each.budget == text(row, "budget") &&
                 (types.empty() || types == each.cache_types);
        });
    const std::string group = results.task->averages_groups ? groups.front() : text(row, "group");
    const auto i = static_cast<size_t>(variant - results.variants.begin());
    links.emplace_back(row.fields.size(), "#" + DetailsId(results, i, group));
  }
  return links;
}

std::vector<std::vector<std::string>> LinksOfParts(const EvalResults& results, size_t n_rows) {
  const std::vector<std::string> groups = GroupNames(results);
  std::vector<std::vector<std::string>> links(n_rows);
  for (size_t row = 0; row < n_rows; ++row) {
    links[row].emplace_back();
    for (size_t i = 0; i < results.variants.size(); ++i) {
      links[row].push_back("#" + DetailsId(results, i, groups[row]));
    }
  }
  return links;
}

}  // namespace winnow::eval
