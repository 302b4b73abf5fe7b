#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "eval/run/runner.h"
#include "report/record.h"

// Summarizes the results of single samples.
namespace winnow::eval {

// A column of the task for one variant, over one group or over all.
struct Summary {
  double value = 0;      // as the column's kind says; kPercent is 0..100
  double deviation = 0;  // standard deviation of single values; kSpread only
  int64_t n = 0;         // samples with that score
  // Standard error of `value`. Of one group: from its samples. Over all groups: from the groups'
  // errors or, if a group has a single sample, from how the groups differ. None: it cannot be
  // estimated.
  std::optional<double> error = std::nullopt;
};
// nullopt if no sample has the score. Over all groups: the mean of the groups' values.
std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column, const std::string& group);
std::optional<Summary> SummarizeColumn(const EvalResults& results, size_t variant,
                                       const Column& column);

// "42.0 ± 3.1": with the standard error, or the deviation of single runs.
std::string CellText(const Summary& summary, const Column& column);

// Whether the variants' caches have different types.
bool HasSeveralTypes(const EvalResults& results);

// The column that tells most about a group: the task's first one for which any of its samples has a
// score (the task's first if there is none). Parts of a task may have columns of their own.
const Column& LeadingColumn(const EvalResults& results, const std::string& group);
// The titles of the leading columns of all groups: "score", or "MC1 or BLEU".
std::string LeadingTitle(const EvalResults& results);

// Groups in the order of the samples.
std::vector<std::string> GroupNames(const EvalResults& results);

// One record per variant (and group, if groups are separate): method, budget, cache_types,
// configuration, [group], samples, the columns by name with NAME_error (Summary::error) and, for
// kSpread, NAME_deviation, relative (the leading column of every group, in per cent of the full
// cache's value; null if that is within two standard errors of zero), kept, cache_bytes,
// cache_bytes_with_lists, cache_share (the latter over what the same tokens take in f16
// uncompressed).
std::vector<report::Record> SampleRows(const EvalResults& results);
// The same, formatted for readers; `human_bytes` formats sizes.
std::vector<report::Record> SummaryTable(const EvalResults& results,
                                         std::string (*human_bytes)(int64_t bytes));
// The leading column: a record for each group with a field for each variant (`for_people`: rounded,
// as text). Empty if there is one group, or groups are separate.
std::vector<report::Record> GroupRows(const EvalResults& results, bool for_people = false);

// Notes for readers of the table, one sentence each: the meaning of ±, why "of full" is empty,
// which rows exceed the bytes asked for, what to do if the full cache scores 0. May be empty.
std::vector<std::string> ListNotes(const EvalResults& results);

// The number of results that could not be computed, and the first reason; empty if there are none.
std::string ListProblems(const EvalResults& results);

// Everything: about, columns, rows, groups, samples with all their results.
report::Record ToRecord(const EvalResults& results);

}  // namespace winnow::eval
