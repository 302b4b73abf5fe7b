#pragma once

#include <string>
#include <vector>

#include "eval/run/runner.h"
#include "report/page/page.h"

// The samples behind the numbers of an evaluation's page: a fold (report::Fold) for every variant
// and group, and the links to them.
namespace winnow::eval {

// The id of the fold of a variant and a group.
std::string DetailsId(const EvalResults& results, size_t variant, const std::string& group);
// [row][column] links for the table of results (SummaryTable): to the samples of the row's variant
// (and group).
std::vector<std::vector<std::string>> LinksOfRows(const EvalResults& results,
                                                  const std::vector<report::Record>& rows);
// [row][column] links for the table of parts (GroupRows): a row for each group; a column for each
// variant after the group's name.
std::vector<std::vector<std::string>> LinksOfParts(const EvalResults& results, size_t n_rows);
// Adds all folds as a section.
void AddSamples(const EvalResults& results, report::Page& page);

}  // namespace winnow::eval
