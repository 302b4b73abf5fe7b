#include "eval/report/page.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "eval/report/page_samples.h"
#include "eval/report/summary.h"
#include "report/page/results.h"

namespace winnow::eval {
namespace {

constexpr size_t kShortTable = 20;  // rows
constexpr size_t kManyLines = 12;   // more lines cannot be told apart in one chart

using report::Plot;
using report::Record;
using Kind = report::Plot::Kind;

constexpr double kMebibyte = 1024.0 * 1024.0;

std::string ColumnName(const Column& column) {
  return column.kind == Column::Kind::kPerplexity ? "perplexity" : column.name;
}

std::string ColumnLabel(const Column& column) {
  return column.title + (column.kind == Column::Kind::kPercent ? ", %" : "");
}

// The facts in `about`, each on one line.
Record RunFacts(const EvalResults& results) {
  Record facts;
  for (const report::Field& field : results.about.fields) {
    const auto* nested = std::get_if<Record>(&field.value.data);
    if (nested == nullptr) {
      facts.Add(field.name, field.value);
      continue;
    }
    std::string text;
    for (const report::Field& part : nested->fields) {
      const auto* word = std::get_if<std::string>(&part.value.data);
      text += (text.empty() ? "" : ", ") +
              (word ? *word : report::ToJson(part.value) + " " + part.name);
    }
    facts.Add(field.name, std::move(text));
  }
  if (results.n_of_other_builds > 0) {
    facts.Add("results", std::to_string(results.n_of_other_builds) + " computed by winnow " +
                             results.other_build);
  }
  return facts;
}

// The name of a method in figures, with its cache types if the variants have several.
std::string SeriesName(const std::string& method, const std::string& types,
                       const EvalResults& results) {
  return HasSeveralTypes(results) ? method + " " + types : method;
}

// One record per variant and group, with the labels that all samples of the group share.
std::vector<Record> CellRecords(const EvalResults& results) {
  std::vector<Record> cells;
  std::set<std::string> seen, kinds;
  for (const Variant& variant : results.variants) {
    if (!variant.budget.empty()) kinds.insert(variant.budget.substr(0, variant.budget.find(' ')));
  }
  const bool alike = kinds.size() == 1;  // then "ratio 0.25" is shown as "0.25"
  for (const EvaluatedSample& sample : results.samples) {
    if (!seen.insert(sample.group).second) continue;
    const Column& column = LeadingColumn(results, sample.group);
    for (size_t i = 0; i < results.variants.size(); ++i) {
      const auto summary = SummarizeColumn(results, i, column, sample.group);
      const Variant& variant = results.variants[i];
      // The budget comes first, because long labels are cut at their end.
      const std::string budget =
          alike ? variant.budget.substr(variant.budget.find(' ') + 1) : variant.budget;
      Record cell = {{"variant", variant.Name()},
                     {"series", SeriesName(variant.method, variant.cache_types, results)},
                     {"part", budget + (budget.empty() ? "" : ", ") + sample.group},
                     {"group", sample.group}};
      for (const report::Field& label : sample.labels.fields) cell.Add(label.name, label.value);
      // A cell that could not be run is shown without a value.
      cell.Add("value", summary ? report::Value(summary->value) : report::Value());
      cell.Add("error",
               summary && summary->error ? report::Value(*summary->error) : report::Value());
      cell.Add("link", "#" + DetailsId(results, i, sample.group));
      cells.push_back(std::move(cell));
    }
  }
  return cells;
}

// The points of streams: tokens, mean NLL so far and since the previous point.
std::vector<Record> CurveRecords(const EvalResults& results) {
  std::vector<Record> points;
  for (const EvaluatedSample& sample : results.samples) {
    for (size_t i = 0; i < results.variants.size(); ++i) {
      if (!sample.results[i]) continue;
      const report::Value* curve = sample.results[i]->outcome.details.Find("points");
      const auto* list = curve ? std::get_if<report::List>(&curve->data) : nullptr;
      for (size_t k = 0; list != nullptr && k < list->size(); ++k) {
        Record point = {{"variant", results.variants[i].Name()},
                        {"series", results.variants[i].method},
                        {"group", sample.group}};
        for (const report::Field& field : std::get<Record>((*list)[k].data).fields) {
          point.Add(field.name, field.value);
        }
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

std::optional<double> NumberIn(const Record& record, std::string_view name) {
  const report::Value* value = record.Find(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<int64_t>(&value->data)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value->data)) return *number;
  return std::nullopt;
}

// The length of a sample, whatever its task calls it.
std::optional<double> SampleLength(const EvaluatedSample& sample) {
  for (const char* name : {"prompt", "length", "pairs", "lines", "topics"}) {
    if (const auto length = NumberIn(sample.labels, name)) return length;
  }
  return std::nullopt;
}

// Decode speed of a variant by depth: one record per length, with means over the runs of that
// length. Only for tasks that measure speed over a fixed number of generated tokens: free answers
// vary in length, and the long ones tend to be wrong.
std::vector<Record> SpeedRecords(const EvalResults& results, size_t variant) {
  struct Sums {
    double depth = 0, speed = 0, n = 0;
  };
  std::map<double, Sums> lengths;
  for (const EvaluatedSample& sample : results.samples) {
    const auto length = SampleLength(sample);
    const auto& result = sample.results[variant];
    if (!length || !result || !result->problem.empty()) continue;
    const Record& details = result->outcome.details;
    const auto generated = NumberIn(details, "generated_tokens");
    const auto prompt = NumberIn(details, "prompt_tokens");
    for (const Score& score : result->outcome.scores) {
      if (score.name != "decode_tokens_per_second" || !prompt || !generated) continue;
      Sums& sums = lengths[*length];
      sums.depth += *prompt + *generated / 2;
      sums.speed += score.value;
      ++sums.n;
    }
  }
  std::vector<Record> speeds;
  for (const auto& [length, sums] : lengths) {
    speeds.push_back({{"variant", results.variants[variant].Name()},
                      {"depth", sums.depth / sums.n},
                      {"speed", sums.speed / sums.n}});
  }
  return speeds;
}

bool HasNumbers(const std::vector<Record>& rows, std::string_view name) {
  return !rows.empty() && NumberIn(rows.front(), name).has_value();
}

// The leading columns of all groups, without repetitions.
std::vector<const Column*> LeadingColumns(const EvalResults& results) {
  std::vector<const Column*> columns;
  for (const std::string& group : GroupNames(results)) {
    const Column* column = &LeadingColumn(results, group);
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
      columns.push_back(column);
    }
  }
  return columns;
}

// Gives every method a panel with its points, and those of the full cache in each.
std::vector<Record> SplitByMethod(std::vector<Record> points) {
  const auto text = [](const Record& point) {
    return std::get<std::string>(point.Find("series")->data);
  };
  std::vector<std::string> methods;
  for (const Record& point : points) {
    const std::string method = text(point);
    if (method == "full" || std::find(methods.begin(), methods.end(), method) != methods.end()) {
      continue;
    }
    methods.push_back(method);
  }
  std::vector<Record> split;
  for (const std::string& method : methods) {
    for (Record point : points) {
      if (text(point) != method && text(point) != "full") continue;
      point.Add("panel", method);
      split.push_back(std::move(point));
    }
  }
  return methods.empty() ? points : split;
}

void AddQualityBySize(const EvalResults& results, report::Page& page) {
  std::vector<Record> rows;
  for (const Record& row : SampleRows(results)) {
    Record point = row;
    point.Add("series", SeriesName(std::get<std::string>(row.Find("method")->data),
                                   std::get<std::string>(row.Find("cache_types")->data), results));
    if (const auto bytes = report::NumberIn(*row.Find("cache_bytes_with_lists"))) {
      point.Add("cache_mib", *bytes / kMebibyte);
    }
    rows.push_back(std::move(point));
  }
  for (const Column* column : LeadingColumns(results)) {
    Plot plot;
    plot.kind = Kind::kMarkedLines;
    plot.name = "front";
    plot.title = column->title + " against the size of the cache";
    plot.caption = HasSeveralTypes(results)
                       ? "Every point is a method at a budget, every line one type of cache."
                       : "Every point is a method at a budget; the full cache is the rightmost.";
    plot.x = {.name = "cache_mib", .label = "cache with lists, MiB", .scale = report::Scale::kLog2};
    plot.y = {.name = ColumnName(*column), .label = ColumnLabel(*column)};
    if (column->logarithmic) {
      plot.y.scale = report::Scale::kLog10;
      plot.caption += " Zeros, such as the full cache's, cannot be shown on this log axis.";
    }
    plot.series = "series";
    plot.error = ColumnName(*column) + "_error";
    plot.caption += " Bars: standard errors.";
    if (!results.task->averages_groups) plot.panel = "group";
    page.AddFigure(MakeFigure(plot, rows));
  }
}

void AddCells(const EvalResults& results, report::Page& page) {
  std::string label;
  for (const Column* column : LeadingColumns(results)) {
    label += (label.empty() ? "" : " or ") + ColumnLabel(*column);
  }
  const std::vector<Record> cells = CellRecords(results);
  Plot plot;
  plot.title = LeadingTitle(results);
  plot.link = "link";
  plot.missing = "could not be run";
  const bool is_missing = std::any_of(cells.begin(), cells.end(), [](const Record& cell) {
    return std::holds_alternative<std::monostate>(cell.Find("value")->data);
  });
  plot.caption = "A cell leads to its samples.";
  if (is_missing) {
    plot.caption +=
        " Dashed: could not be run; its samples say why (often the budget is below what "
        "the method must keep).";
  }
  if (HasNumbers(cells, "length") && HasNumbers(cells, "depth") &&
      cells.front().Find("task") == nullptr) {
    plot.kind = Kind::kHeatMap;
    plot.name = "grid";
    plot.title += " by length and depth";
    plot.x = {.name = "length", .label = "length, tokens"};
    plot.y = {.name = "depth", .label = "depth, % of the text"};
    plot.value = {.name = "value", .label = label};
    plot.panel = "variant";
    page.AddFigure(MakeFigure(plot, cells));
  } else if (GroupNames(results).size() > 1 && results.variants.size() > kShortTable) {
    plot.kind = Kind::kHeatMap;  // this many bars cannot be told apart
    plot.name = "parts";
    plot.title += " by part";
    plot.x = {.name = "part", .label = "budget and part"};
    plot.y = {.name = "series", .label = HasSeveralTypes(results) ? "method and cache" : "method"};
    plot.value = {.name = "value", .label = label};
    page.AddFigure(MakeFigure(plot, cells));
  } else if (GroupNames(results).size() > 1) {
    plot.kind = Kind::kBars;
    plot.name = "parts";
    plot.title += " by part";
    plot.x = {.name = "group", .label = "part"};
    plot.y = {.name = "value", .label = label};
    plot.series = "variant";
    plot.group = "series";
    plot.error = "error";
    page.AddFigure(MakeFigure(plot, cells));
  }
}

void AddCurves(const EvalResults& results, report::Page& page) {
  std::vector<Record> points = CurveRecords(results);
  if (points.empty()) return;
  Plot plot;
  if (results.variants.size() > kManyLines) {
    points = SplitByMethod(std::move(points));
    plot.panel = "panel";
    plot.caption = "A panel for each method, with the full cache in all of them.";
  }
  plot.name = "curve";
  plot.title = "Mean negative log-likelihood so far";
  plot.x = {.name = "tokens", .label = "tokens read"};
  plot.y = {.name = "nll", .label = "nats per token"};
  plot.series = "variant";
  plot.group = "series";
  page.AddFigure(MakeFigure(plot, points));
  plot.name = "recent";
  plot.title = "Mean negative log-likelihood since the previous point";
  plot.y.name = "recent_nll";
  page.AddFigure(MakeFigure(plot, points));
}

// Only if tokens were decoded at several lengths.
void AddSpeeds(const EvalResults& results, report::Page& page) {
  std::vector<Record> speeds;
  bool has_several = false;
  for (size_t i = 0; i < results.variants.size(); ++i) {
    const std::vector<Record> own = SpeedRecords(results, i);
    has_several |= own.size() > 1;
    speeds.insert(speeds.end(), own.begin(), own.end());
  }
  // More lines cannot be told apart.
  if (!has_several || results.variants.size() > kShortTable) return;
  Plot plot;
  plot.kind = Kind::kMarkedLines;
  plot.name = "speed";
  plot.title = "Decoding speed against depth";
  plot.caption = "Means over the runs after prompts of one length.";
  plot.x = {.name = "depth", .label = "tokens before, mean", .scale = report::Scale::kLog2};
  plot.y = {.name = "speed", .label = "tokens per second"};
  plot.series = "variant";
  page.AddFigure(MakeFigure(plot, speeds));
}

}  // namespace

report::Page MakePage(const EvalResults& results, std::string (*human_bytes)(int64_t bytes)) {
  const Task& task = *results.task;
  report::Page page(std::string(task.name), std::string(task.summary) + ".", RunFacts(results));
  const auto add_results = [&] {
    std::vector<Record> rows = SummaryTable(results, human_bytes);
    std::string caption;
    for (const std::string& note : ListNotes(results)) caption += note + " ";
    auto links = LinksOfRows(results, rows);
    page.AddTable({.name = "results",
                   .title = "Results",
                   .caption = caption + ListProblems(results),
                   .rows = std::move(rows),
                   .links = std::move(links)});
  };
  // Below a long table, readers would miss the figures.
  const bool figures_first = results.variants.size() > kShortTable;
  if (!figures_first) add_results();
  AddQualityBySize(results, page);
  AddCells(results, page);
  AddCurves(results, page);
  AddSpeeds(results, page);
  if (figures_first) add_results();
  const std::vector<Record> groups = GroupRows(results, true);
  if (!groups.empty()) {
    page.AddTable({.name = "parts",
                   .title = LeadingTitle(results) + " by part",
                   .caption = "",
                   .rows = groups,
                   .links = LinksOfParts(results, groups.size())});
  }
  AddSamples(results, page);
  return page;
}

}  // namespace winnow::eval
