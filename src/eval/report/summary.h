#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/run/runner.h"
#include "report/record.h"

// What the results of single samples say together.
namespace winnow::eval {

// A column of the task for one variant: of one group, or over all.
struct Summary {
  double value = 0;      // as the column's kind says; kPercent is 0..100
  double deviation = 0;  // standard deviation of single values; kSpread only
  int64_t n = 0;         // samples with that score
  // Standard error of value: from the samples; over all groups from the groups' errors, or from
  // how the groups differ where one of them has a single sample. None: nothing to tell it from.
  std::optional<double> error = std::nullopt;
};
// nullopt if no sample has the score. Over all groups: the mean of the groups' values.
std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column, const std::string& group);
std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column);

// "42.0 ± 3.1": with the standard error, or the deviation of single runs.
std::string CellText(const Summary& summary, const Column& column);

// Whether the variants' caches are of several types.
bool HasSeveralTypes(const EvalResults& results);

// The column that says most about the samples of a group: the task's first one that any of them
// has a score for (the task's first if there is none). Parts of a task may have columns of their
// own.
const Column& LeadingColumn(const EvalResults& results, const std::string& group);
// The titles of the leading columns of all groups: "score", or "MC1 or BLEU".
std::string LeadingTitle(const EvalResults& results);

// Groups in the order of the samples.
std::vector<std::string> GroupNames(const EvalResults& results);

// One record per variant (and group, where groups stand apart): method, budget, cache_types,
// configuration, [group], samples, the columns by name and NAME_error (Summary::error), relative
// (the leading column of every group, in per cent of the full cache's value; null where that is
// within two standard errors of zero), kept, cache_bytes, cache_bytes_with_lists,
// cache_share (of the latter in what the same tokens take in f16 uncompressed). What a task reports
// in numbers.
std::vector<report::Record> SampleRows(const EvalResults& results);
// The same as people read it; `human_bytes` writes sizes.
std::vector<report::Record> SummaryTable(const EvalResults& results,
                                         std::string (*human_bytes)(int64_t bytes));
// The leading column, a record for each group with a field for each variant (for people: rounded,
// as text). Empty where there is one group, or groups stand apart.
std::vector<report::Record> GroupRows(const EvalResults& results, bool for_people = false);

// What a reader of the table has to know: what stands behind ±, why "of full" is empty, what is
// larger than was asked for, what to do where nothing is answered. A sentence a line; may be empty.
std::vector<std::string> ListNotes(const EvalResults& results);

// Samples that a variant could not run, and the first reason. Empty: none.
std::string ListProblems(const EvalResults& results);

// Everything: about, columns, rows, groups, samples with all their results.
report::Record ToRecord(const EvalResults& results);

}  // namespace winnow::eval
