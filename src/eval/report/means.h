#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/report/summary.h"

// Computes the values in the tables of results (summary.cc, summary_tables.cc).
namespace winnow::eval {

// Null: the sample could not be run under the variant, or has no such score.
const Score* FindScore(const EvaluatedSample& sample, size_t variant, const std::string& name);
// Whether any sample of a group (of any group, if null) has a score for a column.
bool HasColumn(const EvalResults& results, const Column& column,
               const std::string* group = nullptr);

// nullopt: there are no scores.
std::optional<Summary> SummarizeResults(const std::vector<const Score*>& scores,
                                        const Column& column);
// The standard error of the mean of the groups' values; nullopt: it cannot be estimated.
std::optional<double> ErrorOfMean(const std::vector<Summary>& groups);
// Whether a value cannot be told from zero: it is zero, or within two standard errors of it.
bool IsNoise(double value, std::optional<double> error);

}  // namespace winnow::eval
