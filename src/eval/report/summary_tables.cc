// The tables of results, for readers and for programs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fixed.h"
#include "eval/report/means.h"
#include "eval/report/summary.h"
#include "eval/run/equal_bytes.h"

namespace winnow::eval {
namespace {

// The values of the groups' leading columns in per cent of the first variant's, over the samples
// that both have. `is_noise`: there is no value because the first variant's is within noise of
// zero.
std::optional<double> RelativeToFull(const EvalResults& results, size_t variant,
                                     const std::vector<std::string>& groups, bool& is_noise) {
  double ours = 0;
  double full = 0;
  std::vector<Summary> full_groups;
  for (const std::string& group : groups) {
    const Column& column = LeadingColumn(results, group);
    if (!column.relative) continue;
    std::vector<const Score*> own;
    std::vector<const Score*> base;
    for (const EvaluatedSample& sample : results.samples) {
      if (sample.group != group) continue;
      const Score* score = FindScore(sample, variant, column.name);
      const Score* base_score = FindScore(sample, 0, column.name);
      if (score == nullptr || base_score == nullptr) continue;
      own.push_back(score);
      base.push_back(base_score);
    }
    if (own.empty()) continue;
    ours += SummarizeResults(own, column)->value;
    full_groups.push_back(*SummarizeResults(base, column));
    full += full_groups.back().value;
  }
  if (full_groups.empty()) return std::nullopt;
  const auto n = static_cast<double>(full_groups.size());
  is_noise = IsNoise(full / n, ErrorOfMean(full_groups));
  if (is_noise) return std::nullopt;
  return 100 * ours / full;
}

// Means over the samples of the groups that ran, weighted like their scores: a short window at the
// end of a text counts less than the others.
struct CacheMeans {
  double kept = 0, bytes = 0, bytes_with_lists = 0;
  double share = 0;  // bytes_with_lists over what the same tokens take in f16 uncompressed
  int64_t n = 0;
};

CacheMeans MeanCache(const EvalResults& results, size_t variant,
                     const std::vector<std::string>& groups) {
  CacheMeans means;
  double weights = 0;
  for (const EvaluatedSample& sample : results.samples) {
    if (std::find(groups.begin(), groups.end(), sample.group) == groups.end()) continue;
    const auto& result = sample.results[variant];
    if (!result || !result->problem.empty()) continue;
    const Outcome& outcome = result->outcome;
    const double weight = outcome.scores.empty() ? 1 : outcome.scores.front().weight;
    ++means.n;
    weights += weight;
    means.kept += weight * outcome.kept;
    const auto bytes_with_lists = static_cast<double>(outcome.cache_bytes_with_lists);
    means.bytes += weight * static_cast<double>(outcome.cache_bytes);
    means.bytes_with_lists += weight * bytes_with_lists;
    if (outcome.cache_bytes_full_f16 > 0) {
      means.share += weight * bytes_with_lists / static_cast<double>(outcome.cache_bytes_full_f16);
    }
  }
  if (weights > 0) {
    for (double* mean : {&means.kept, &means.bytes, &means.bytes_with_lists, &means.share}) {
      *mean /= weights;
    }
  }
  return means;
}

// A row of the tables before it is formatted.
struct TableRow {
  size_t variant = 0;
  std::string group;  // empty: all
  std::vector<std::pair<const Column*, std::optional<Summary>>> cells;
  std::optional<double> relative;  // of the leading columns
  bool relative_is_noise = false;
  CacheMeans cache;
};

std::vector<TableRow> TableRows(const EvalResults& results) {
  const std::vector<std::string> groups = GroupNames(results);
  std::vector<std::vector<std::string>> blocks = {groups};
  if (!results.task->averages_groups) {
    blocks.clear();
    for (const std::string& group : groups) blocks.push_back({group});
  }
  std::vector<TableRow> rows;
  for (const std::vector<std::string>& block : blocks) {
    for (size_t i = 0; i < results.variants.size(); ++i) {
      TableRow row;
      row.variant = i;
      if (!results.task->averages_groups) row.group = block[0];
      for (const Column& column : results.task->columns) {
        if (!HasColumn(results, column)) continue;
        row.cells.emplace_back(&column, row.group.empty()
                                            ? SummarizeColumn(results, i, column)
                                            : SummarizeColumn(results, i, column, row.group));
      }
      row.relative = RelativeToFull(results, i, block, row.relative_is_noise);
      row.cache = MeanCache(results, i, block);
      // Leave out what an interrupted run did not reach: it would look as if it had scored nothing.
      if (results.stopped && row.cache.n == 0) continue;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// The share of the full cache's bytes that a variant may take; 0: no limit. Methods that find their
// own size get the limit of the others.
double ShareLimit(const EvalResults& results, size_t variant) {
  const Variant& own = results.variants[variant];
  if (own.equal_bytes > 0 || own.method == "full" || !own.budget.empty()) return own.equal_bytes;
  double limit = 0;
  for (const Variant& other : results.variants) limit = std::max(limit, other.equal_bytes);
  return limit;
}

report::Record VariantRecord(const Variant& variant) {
  return {
      {"method", variant.method}, {"budget", variant.budget}, {"cache_types", variant.cache_types}};
}

const char* ToString(Column::Kind kind) {
  switch (kind) {
    case Column::Kind::kPercent:
      return "per cent";
    case Column::Kind::kMean:
      return "mean";
    case Column::Kind::kPerplexity:
      return "perplexity";
    case Column::Kind::kSpread:
      return "mean and standard deviation";
  }
  return "";
}

report::Record ToRecord(const EvaluatedSample& sample, const EvalResults& results) {
  report::Record record = {{"sample", sample.id}, {"group", sample.group}};
  for (const report::Field& label : sample.labels.fields) record.Add(label.name, label.value);
  report::List list;
  for (size_t i = 0; i < sample.results.size(); ++i) {
    if (!sample.results[i]) continue;
    const SampleResult& result = *sample.results[i];
    report::Record one = VariantRecord(results.variants[i]);
    if (!result.build.empty()) one.Add("winnow", result.build);
    if (!result.problem.empty()) {
      one.Add("problem", result.problem);
    } else {
      report::Record scores;
      for (const Score& score : result.outcome.scores) scores.Add(score.name, score.value);
      one.Add("scores", std::move(scores));
      one.Add("cache_bytes", result.outcome.cache_bytes);
      one.Add("cache_bytes_with_lists", result.outcome.cache_bytes_with_lists);
      one.Add("cache_bytes_full_f16", result.outcome.cache_bytes_full_f16);
      one.Add("kept", report::CountOrMean(result.outcome.kept));
      one.Add("details", result.outcome.details);
    }
    list.emplace_back(std::move(one));
  }
  record.Add("results", std::move(list));
  return record;
}

}  // namespace

std::vector<report::Record> SampleRows(const EvalResults& results) {
  std::vector<report::Record> rows;
  for (const TableRow& row : TableRows(results)) {
    report::Record record = VariantRecord(results.variants[row.variant]);
    record.Add("configuration", results.variants[row.variant].configuration);
    if (!row.group.empty()) record.Add("group", row.group);
    record.Add("samples", row.cache.n);
    for (const auto& [column, summary] : row.cells) {
      // Perplexity and the mean NLL come from the same score: name them apart.
      const std::string name =
          column->kind == Column::Kind::kPerplexity ? "perplexity" : column->name;
      record.Add(name, summary ? report::Value(summary->value) : report::Value());
      record.Add(name + "_error",
                 summary && summary->error ? report::Value(*summary->error) : report::Value());
      if (column->kind == Column::Kind::kSpread) {
        record.Add(name + "_deviation",
                   summary ? report::Value(summary->deviation) : report::Value());
      }
    }
    record.Add("relative", row.relative ? report::Value(*row.relative) : report::Value());
    record.Add("kept", report::CountOrMean(row.cache.kept));
    record.Add("cache_bytes", report::CountOrMean(row.cache.bytes));
    record.Add("cache_bytes_with_lists", report::CountOrMean(row.cache.bytes_with_lists));
    record.Add("cache_share", row.cache.n > 0 ? report::Value(row.cache.share) : report::Value());
    rows.push_back(std::move(record));
  }
  return rows;
}

std::vector<report::Record> SummaryTable(const EvalResults& results,
                                         std::string (*human_bytes)(int64_t bytes)) {
  const std::vector<std::string> groups = GroupNames(results);
  const bool is_relative = std::any_of(groups.begin(), groups.end(), [&](const std::string& group) {
    return LeadingColumn(results, group).relative;
  });
  std::vector<report::Record> rows;
  for (const TableRow& row : TableRows(results)) {
    const Variant& variant = results.variants[row.variant];
    report::Record record = {{"method", variant.method}, {"budget", variant.budget}};
    if (HasSeveralTypes(results)) record.Add("types", variant.cache_types);
    if (!row.group.empty()) record.Add("group", row.group);
    record.Add("samples", row.cache.n);
    for (const auto& [column, summary] : row.cells) {
      record.Add(column->title, summary ? CellText(*summary, *column) : "");
    }
    if (is_relative) {
      record.Add("of full", row.relative ? Fixed(*row.relative, 1) + " %" : "");
    }
    record.Add("kept", Fixed(row.cache.kept, 1));
    record.Add("cache", human_bytes(static_cast<int64_t>(row.cache.bytes)));
    record.Add("with lists", human_bytes(static_cast<int64_t>(row.cache.bytes_with_lists)));
    const bool exceeds = Exceeds(row.cache.share, ShareLimit(results, row.variant));
    record.Add(
        "of full f16",
        row.cache.n == 0 ? "" : Fixed(100 * row.cache.share, 1) + (exceeds ? " % (over)" : " %"));
    rows.push_back(std::move(record));
  }
  return rows;
}

std::vector<report::Record> GroupRows(const EvalResults& results, bool for_people) {
  const std::vector<std::string> groups = GroupNames(results);
  std::vector<report::Record> rows;
  if (groups.size() < 2 || !results.task->averages_groups) return rows;
  for (const std::string& group : groups) {
    const Column& column = LeadingColumn(results, group);
    report::Record record = {{"group", group}};
    for (size_t i = 0; i < results.variants.size(); ++i) {
      const auto summary = SummarizeColumn(results, i, column, group);
      report::Value value;
      if (summary) value = summary->value;
      if (for_people) value = summary ? CellText(*summary, column) : "";
      record.Add(results.variants[i].Name(), std::move(value));
    }
    rows.push_back(std::move(record));
  }
  return rows;
}

std::vector<std::string> ListNotes(const EvalResults& results) {
  const std::vector<Column>& columns = results.task->columns;
  const bool is_spread = std::any_of(columns.begin(), columns.end(), [](const Column& column) {
    return column.kind == Column::Kind::kSpread;
  });
  bool has_error = false, is_noise = false, exceeds = false, is_zero = false;
  const std::vector<TableRow> rows = TableRows(results);
  for (const TableRow& row : rows) {
    for (const auto& [column, summary] : row.cells) has_error |= summary && summary->error;
    is_noise |= row.relative_is_noise;
    exceeds |= Exceeds(row.cache.share, ShareLimit(results, row.variant));
    if (row.variant != 0 || row.cells.empty()) continue;
    const auto& [column, summary] = row.cells.front();
    is_zero |= column->kind == Column::Kind::kPercent && summary && summary->value == 0;
  }
  std::vector<std::string> notes;
  if (is_spread) {
    notes.emplace_back("± is the standard deviation of single runs.");
  } else if (has_error) {
    notes.emplace_back("± is the standard error of the mean over samples.");
  }
  if (is_noise) {
    notes.emplace_back(
        "\"of full\" is empty where the full cache's score is within two standard errors of zero: "
        "a share of it would say nothing.");
  }
  if (is_zero) {
    notes.emplace_back(
        "The full cache scores 0 here: this model does not solve the task, so no method can lose "
        "anything. The task needle on builtin data is one that the bundled model solves; other "
        "tasks need a model that was trained for them, and instruct models need their chat "
        "template.");
  }
  if (exceeds) {
    notes.emplace_back("(over): more bytes than the share asked for; the method cannot keep less.");
  }
  return notes;
}

std::string ListProblems(const EvalResults& results) {
  int64_t n = 0;
  std::string first;
  for (const EvaluatedSample& sample : results.samples) {
    for (size_t i = 0; i < sample.results.size(); ++i) {
      if (!sample.results[i] || sample.results[i]->problem.empty()) continue;
      if (n++ == 0) {
        first =
            sample.id + " under " + results.variants[i].Name() + ": " + sample.results[i]->problem;
      }
    }
  }
  if (n == 0) return "";
  return "results missing: " + std::to_string(n) + "; the first: " + first;
}

report::Record ToRecord(const EvalResults& results) {
  report::List columns;
  for (const Column& column : results.task->columns) {
    columns.emplace_back(report::Record{
        {"score", column.name}, {"title", column.title}, {"summary", ToString(column.kind)}});
  }
  report::List rows;
  for (report::Record& row : SampleRows(results)) rows.emplace_back(std::move(row));
  report::List groups;
  for (report::Record& row : GroupRows(results)) groups.emplace_back(std::move(row));
  report::List samples;
  for (const EvaluatedSample& sample : results.samples) {
    samples.emplace_back(ToRecord(sample, results));
  }
  report::Record record = {{"task", results.task->name}};
  for (const report::Field& field : results.about.fields) record.Add(field.name, field.value);
  record.Add("finished", !results.stopped);
  record.Add("columns", std::move(columns));
  record.Add("rows", std::move(rows));
  record.Add("groups", std::move(groups));
  record.Add("samples", std::move(samples));
  return record;
}

}  // namespace winnow::eval
