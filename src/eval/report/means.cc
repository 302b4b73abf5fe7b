#include "eval/report/means.h"

#include <algorithm>
#include <cmath>

namespace winnow::eval {

const Score* FindScore(const EvaluatedSample& sample, size_t variant, const std::string& name) {
  const std::optional<SampleResult>& result = sample.results[variant];
  if (!result || !result->problem.empty()) return nullptr;
  const auto& scores = result->outcome.scores;
  const auto found = std::find_if(scores.begin(), scores.end(),
                                  [&](const Score& score) { return score.name == name; });
  return found == scores.end() ? nullptr : &*found;
}

bool HasColumn(const EvalResults& results, const Column& column, const std::string* group) {
  return std::any_of(results.samples.begin(), results.samples.end(), [&](const auto& sample) {
    if (group != nullptr && sample.group != *group) return false;
    for (size_t i = 0; i < results.variants.size(); ++i) {
      if (FindScore(sample, i, column.name) != nullptr) return true;
    }
    return false;
  });
}

std::optional<Summary> SummarizeResults(const std::vector<const Score*>& scores,
                                        const Column& column) {
  if (scores.empty()) return std::nullopt;
  double sum = 0;
  double weights = 0;
  for (const Score* score : scores) {
    sum += score->weight * score->value;
    weights += score->weight;
  }
  Summary summary;
  summary.n = static_cast<int64_t>(scores.size());
  summary.value = weights > 0 ? sum / weights : 0;
  if (column.kind == Column::Kind::kSpread && summary.n > 1) {
    double squares = 0;
    for (const Score* score : scores) squares += std::pow(score->value - summary.value, 2);
    summary.deviation = std::sqrt(squares / static_cast<double>(summary.n - 1));
  }
  if (summary.n > 1 && weights > 0) {
    const auto n = static_cast<double>(summary.n);
    double squares = 0;
    for (const Score* score : scores) {
      squares += std::pow(score->weight * (score->value - summary.value), 2);
    }
    summary.error = std::sqrt(squares * n / (n - 1)) / weights;
  }
  if (column.kind == Column::Kind::kPercent) {
    summary.value *= 100;
    if (summary.error) *summary.error *= 100;
  }
  if (column.kind == Column::Kind::kPerplexity) {
    summary.value = std::exp(summary.value);
    if (summary.error) *summary.error *= summary.value;
  }
  return summary;
}

std::optional<double> ErrorOfMean(const std::vector<Summary>& groups) {
  const auto n = static_cast<double>(groups.size());
  double squares = 0;
  const bool known = std::all_of(groups.begin(), groups.end(),
                                 [](const Summary& group) { return group.error.has_value(); });
  if (known && !groups.empty()) {
    for (const Summary& group : groups) squares += *group.error * *group.error;
    return std::sqrt(squares) / n;
  }
  if (groups.size() < 2) return std::nullopt;
  double mean = 0;
  for (const Summary& group : groups) mean += group.value / n;
  for (const Summary& group : groups) squares += std::pow(group.value - mean, 2);
  return std::sqrt(squares / (n - 1) / n);
}

bool IsNoise(double value, std::optional<double> error) {
  return value == 0 || (error && std::abs(value) <= 2 * *error);
}

}  // namespace winnow::eval
