#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/report/summary.h"

// What tables of results are computed from (summary.cc, summary_tables.cc).
namespace winnow::eval {

// Null: the sample could not be run under the variant, or has no such score.
const Score* FindScore(const EvaluatedSample& sample, size_t variant, const std::string& name);
// Whether any sample of a group (of any, if it is null) has a score for a column.
bool HasColumn(const EvalResults& results, const Column& column,
               const std::string* group = nullptr);

// nullopt: there are none.
std::optional<Summary> SummarizeResults(const std::vector<const Score*>& scores,
                                        const Column& column);
// The standard error of the mean of the groups' values; none: nothing to tell it from.
std::optional<double> ErrorOfMean(const std::vector<Summary>& groups);
// Whether a value cannot be told from zero: it is, or lies within two standard errors of it.
bool IsNoise(double value, std::optional<double> error);

}  // namespace winnow::eval
