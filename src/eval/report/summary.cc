#include "eval/report/summary.h"

#include <algorithm>
#include <cmath>

#include "base/fixed.h"
#include "eval/report/means.h"

namespace winnow::eval {

std::string CellText(const Summary& summary, const Column& column) {
  std::string cell = Fixed(summary.value, column.digits);
  if (!std::isfinite(summary.value)) return cell;
  if (column.kind == Column::Kind::kSpread) {
    return cell + " ± " + Fixed(summary.deviation, column.digits);
  }
  return cell + (summary.error ? " ± " + Fixed(*summary.error, column.digits) : "");
}

bool HasSeveralTypes(const EvalResults& results) {
  return std::any_of(results.variants.begin(), results.variants.end(), [&](const Variant& variant) {
    return variant.cache_types != results.variants.front().cache_types;
  });
}

const Column& LeadingColumn(const EvalResults& results, const std::string& group) {
  const std::vector<Column>& columns = results.task->columns;
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const Column& column) {
    return HasColumn(results, column, &group);
  });
  return found == columns.end() ? columns.front() : *found;
}

std::string LeadingTitle(const EvalResults& results) {
  std::vector<std::string> titles;
  std::string text;
  for (const std::string& group : GroupNames(results)) {
    const std::string& title = LeadingColumn(results, group).title;
    if (std::find(titles.begin(), titles.end(), title) != titles.end()) continue;
    titles.push_back(title);
    text += (text.empty() ? "" : " or ") + title;
  }
  return text;
}

std::vector<std::string> GroupNames(const EvalResults& results) {
  std::vector<std::string> groups;
  for (const EvaluatedSample& sample : results.samples) {
    if (std::find(groups.begin(), groups.end(), sample.group) == groups.end()) {
      groups.push_back(sample.group);
    }
  }
  return groups;
}

std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column, const std::string& group) {
  std::vector<const Score*> scores;
  for (const EvaluatedSample& sample : results.samples) {
    if (sample.group != group) continue;
    if (const Score* score = FindScore(sample, variant, column.name)) scores.push_back(score);
  }
  return SummarizeResults(scores, column);
}

std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column) {
  Summary all;
  std::vector<Summary> groups;
  for (const std::string& group : GroupNames(results)) {
    const auto summary = SummarizeColumn(results, variant, column, group);
    if (!summary) continue;
    groups.push_back(*summary);
    all.n += summary->n;
    all.value += summary->value;
  }
  if (groups.empty()) return std::nullopt;
  all.value /= static_cast<double>(groups.size());
  all.error = ErrorOfMean(groups);
  return all;
}

}  // namespace winnow::eval
