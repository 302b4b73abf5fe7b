#include "report/page/results.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "report/page/axis.h"

namespace winnow::report {
namespace {

// A finite number, which a chart can show.
std::optional<double> NumberIn(const Record& row, const std::string& column) {
  const Value* value = row.Find(column);
  const auto number = value == nullptr ? std::nullopt : NumberIn(*value);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

// The text for a value in a legend or along an axis; nullopt if the row has none.
std::optional<std::string> NameIn(const Record& row, const std::string& column) {
  const Value* value = row.Find(column);
  if (value == nullptr || std::holds_alternative<std::monostate>(value->data)) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
  if (const auto number = NumberIn(row, column)) return NumberLabel(*number);
  return ToJson(*value);
}

std::string ColumnLabel(const Column& column) {
  return column.label.empty() ? column.name : column.label;
}

Axis MakeAxis(const Column& column) {
  return {.label = ColumnLabel(column), .scale = column.scale, .from = {}, .to = {}};
}

using Rows = std::vector<const Record*>;

// The distinct values of a column, in the order they first appear; ascending if all are numbers.
std::vector<std::string> NamesIn(const Rows& rows, const std::string& column) {
  struct Found {
    std::string name;
    std::optional<double> number;
  };
  std::vector<Found> all;
  bool numeric = true;
  for (const Record* row : rows) {
    const auto name = NameIn(*row, column);
    if (!name) continue;
    const bool known = std::any_of(all.begin(), all.end(),
                                   [&](const Found& found) { return found.name == *name; });
    if (known) continue;
    all.push_back({*name, NumberIn(*row, column)});
    numeric = numeric && all.back().number.has_value();
  }
  if (numeric) {
    std::sort(all.begin(), all.end(),
              [](const Found& a, const Found& b) { return *a.number < *b.number; });
  }
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const Found& found : all) names.push_back(found.name);
  return names;
}

// Rows with that value in a column; all rows if `column` is empty.
Rows RowsWith(const Rows& rows, const std::string& column, const std::string& name) {
  if (column.empty()) return rows;
  Rows found;
  for (const Record* row : rows) {
    if (NameIn(*row, column) == name) found.push_back(row);
  }
  return found;
}

// The names in a column; one empty name if `column` is empty.
std::vector<std::string> NamesOrOne(const Rows& rows, const std::string& column) {
  return column.empty() ? std::vector<std::string>{""} : NamesIn(rows, column);
}

LineChart MakeLineChart(const Plot& plot, const Rows& rows) {
  LineChart chart = {.x = MakeAxis(plot.x),
                     .y = MakeAxis(plot.y),
                     .series = {},
                     .style = plot.kind == Plot::Kind::kMarkedLines ? LineChart::Style::kMarkedLine
                                                                    : LineChart::Style::kLine};
  for (const std::string& name : NamesOrOne(rows, plot.series)) {
    struct PlotPoint {
      double x, y, error;
    };
    std::vector<PlotPoint> points;
    LineChart::Series series = {.name = name, .x = {}, .y = {}};
    for (const Record* row : RowsWith(rows, plot.series, name)) {
      const auto x = NumberIn(*row, plot.x.name);
      const auto y = NumberIn(*row, plot.y.name);
      if (x && y) points.push_back({*x, *y, NumberIn(*row, plot.error).value_or(0)});
      series.group = NameIn(*row, plot.group).value_or("");
    }
    std::stable_sort(points.begin(), points.end(),
                     [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    for (const PlotPoint& point : points) {
      series.x.push_back(point.x);
      series.y.push_back(point.y);
      if (!plot.error.empty()) series.errors.push_back(point.error);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Means of the values that share a cell; NaN for a cell without values.
class Means {
 public:
  Means(std::vector<std::string> rows, std::vector<std::string> columns)
      : rows_(std::move(rows)),
        columns_(std::move(columns)),
        links_(rows_.size() * columns_.size()),
        sums_(links_.size(), 0),
        counts_(sums_.size(), 0) {}

  void Add(const std::optional<std::string>& row, const std::optional<std::string>& column,
           std::optional<double> value, const std::optional<std::string>& link = std::nullopt) {
    if (!row || !column) return;
    const auto place = [](const std::vector<std::string>& names, const std::string& name) {
      return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    };
    const size_t cell = place(rows_, *row) * columns_.size() + place(columns_, *column);
    if (link) links_[cell] = *link;
    if (!value) return;
    sums_[cell] += *value;
    ++counts_[cell];
  }
  std::vector<double> Take() {
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i] = counts_[i] == 0 ? NAN : sums_[i] / static_cast<double>(counts_[i]);
    }
    return std::move(sums_);
  }
  std::vector<std::string> TakeLinks() { return std::move(links_); }

 private:
  std::vector<std::string> rows_, columns_, links_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

// All panels get the same categories, so that they can be compared.
BarChart MakeBarChart(const Plot& plot, const Rows& rows, const Rows& all) {
  BarChart chart = {.x_label = ColumnLabel(plot.x),
                    .categories = NamesIn(all, plot.x.name),
                    .y = MakeAxis(plot.y),
                    .series = {}};
  for (const std::string& name : NamesOrOne(rows, plot.series)) {
    Means means({name}, chart.categories), errors({name}, chart.categories);
    BarChart::Series series = {.name = name, .values = {}};
    for (const Record* row : RowsWith(rows, plot.series, name)) {
      const auto category = NameIn(*row, plot.x.name);
      means.Add(name, category, NumberIn(*row, plot.y.name), NameIn(*row, plot.link));
      errors.Add(name, category, NumberIn(*row, plot.error));
      series.group = NameIn(*row, plot.group).value_or("");
    }
    series.values = means.Take();
    if (!plot.error.empty()) series.errors = errors.Take();
    if (!plot.link.empty()) series.links = means.TakeLinks();
    chart.series.push_back(std::move(series));
  }
  return chart;
}

HeatMap MakeHeatMap(const Plot& plot, const Rows& rows, const Rows& all) {
  HeatMap map = {.x = MakeAxis(plot.x),
                 .y = MakeAxis(plot.y),
                 .values = {},
                 .column_names = NamesIn(all, plot.x.name),
                 .row_names = NamesIn(all, plot.y.name),
                 .value_label = ColumnLabel(plot.value),
                 .from = {},
                 .to = {},
                 .show_values = true};
  map.n_rows = static_cast<int64_t>(map.row_names.size());
  map.n_columns = static_cast<int64_t>(map.column_names.size());
  Means means(map.row_names, map.column_names);
  for (const Record* row : rows) {
    means.Add(NameIn(*row, plot.y.name), NameIn(*row, plot.x.name), NumberIn(*row, plot.value.name),
              NameIn(*row, plot.link));
  }
  map.values = means.Take();
  map.missing = plot.missing;
  if (!plot.link.empty()) map.links = means.TakeLinks();
  return map;
}

}  // namespace

Figure MakeFigure(const Plot& plot, const std::vector<Record>& rows) {
  WINNOW_CHECK(!plot.x.name.empty() && !plot.y.name.empty());
  WINNOW_CHECK(plot.kind != Plot::Kind::kHeatMap || !plot.value.name.empty());
  Rows all;
  for (const Record& row : rows) all.push_back(&row);
  Figure figure = {.name = plot.name, .title = plot.title, .caption = plot.caption, .panels = {}};
  for (const std::string& name : NamesOrOne(all, plot.panel)) {
    const Rows some = RowsWith(all, plot.panel, name);
    Figure::Panel panel = {.title = name, .chart = {}};
    switch (plot.kind) {
      case Plot::Kind::kLines:
      case Plot::Kind::kMarkedLines:
        panel.chart = MakeLineChart(plot, some);
        break;
      case Plot::Kind::kBars:
        panel.chart = MakeBarChart(plot, some, all);
        break;
      case Plot::Kind::kHeatMap:
        panel.chart = MakeHeatMap(plot, some, all);
        break;
    }
    const auto* map = std::get_if<HeatMap>(&panel.chart);
    if (map != nullptr && map->values.empty()) continue;  // nothing was measured
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

Page MakePage(const Results& results) {
  Page page(results.title, results.introduction, results.facts);
  for (const Table& table : results.tables) page.AddTable(table);
  for (const Plot& plot : results.plots) {
    Figure figure = MakeFigure(plot, results.rows);
    if (!figure.panels.empty()) page.AddFigure(std::move(figure));
  }
  if (results.show_rows && !results.rows.empty()) {
    page.AddSection("All measurements");
    page.AddTable({.name = "measurements", .title = "", .caption = "", .rows = results.rows});
  }
  return page;
}

}  // namespace winnow::report
