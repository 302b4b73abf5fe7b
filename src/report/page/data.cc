#include "report/page/data.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace winnow::report {
namespace {

std::string NameOr(const std::string& label, const char* otherwise) {
  return label.empty() ? otherwise : label;
}

// An empty cell if nothing was measured.
Value Measured(double value) { return std::isnan(value) ? Value() : Value(value); }

List Measured(std::span<const double> values) {
  List list;
  for (const double value : values) list.push_back(Measured(value));
  return list;
}

// If there are several panels, a row begins with its panel.
Record DataRow(const Figure& figure, const Figure::Panel& panel) {
  Record row;
  if (figure.panels.size() > 1) row.Add("panel", panel.title);
  return row;
}

void AddRows(const Figure& figure, const Figure::Panel& panel, const LineChart& chart,
             std::vector<Record>& rows) {
  const bool labelled = std::any_of(chart.series.begin(), chart.series.end(),
                                    [](const auto& series) { return !series.labels.empty(); });
  for (const LineChart::Series& series : chart.series) {
    for (size_t i = 0; i < series.x.size(); ++i) {
      Record row = DataRow(figure, panel);
      row.Add("series", series.name);
      row.Add(NameOr(chart.x.label, "x"), Measured(series.x[i]));
      row.Add(NameOr(chart.y.label, "y"), Measured(series.y[i]));
      if (!series.errors.empty()) row.Add("standard error", Measured(series.errors[i]));
      if (labelled) row.Add("label", series.labels.empty() ? Value() : series.labels[i]);
      rows.push_back(std::move(row));
    }
  }
}

void AddRows(const Figure& figure, const Figure::Panel& panel, const BarChart& chart,
             std::vector<Record>& rows) {
  for (const BarChart::Series& series : chart.series) {
    for (size_t i = 0; i < series.values.size(); ++i) {
      Record row = DataRow(figure, panel);
      row.Add("series", series.name);
      row.Add(NameOr(chart.x_label, "category"), chart.categories[i]);
      row.Add(NameOr(chart.y.label, "value"), Measured(series.values[i]));
      if (!series.errors.empty()) row.Add("standard error", Measured(series.errors[i]));
      rows.push_back(std::move(row));
    }
  }
}

void AddRows(const Figure& figure, const Figure::Panel& panel, const Histogram& chart,
             std::vector<Record>& rows) {
  for (size_t i = 0; i < chart.counts.size(); ++i) {
    Record row = DataRow(figure, panel);
    row.Add("from", chart.edges[i]);
    row.Add("to", chart.edges[i + 1]);
    row.Add(NameOr(chart.y.label, "count"), Measured(chart.counts[i]));
    rows.push_back(std::move(row));
  }
}

// The name of a row or column, or the axis value at which its cells begin.
Value CellName(const std::vector<std::string>& names, const Axis& axis, int64_t i, int64_t n) {
  if (!names.empty()) return names[static_cast<size_t>(i)];
  const double from = axis.from.value_or(0);
  const double to = axis.to.value_or(static_cast<double>(n));
  return from + (to - from) * static_cast<double>(i) / static_cast<double>(n);
}

List PlaceList(const std::vector<std::string>& names, const Axis& axis, int64_t n) {
  List places;
  for (int64_t i = 0; i < n; ++i) places.push_back(CellName(names, axis, i, n));
  return places;
}

std::string PlaceText(const Value& place) {
  const auto* name = std::get_if<std::string>(&place.data);
  return name != nullptr ? *name : ToJson(place);
}

void AddRows(const Figure& figure, const Figure::Panel& panel, const HeatMap& map,
             std::vector<Record>& rows) {
  const List columns = PlaceList(map.column_names, map.x, map.n_columns);
  for (int64_t y = 0; y < map.n_rows; ++y) {
    Record row = DataRow(figure, panel);
    row.Add(NameOr(map.y.label, "row"), CellName(map.row_names, map.y, y, map.n_rows));
    for (int64_t x = 0; x < map.n_columns; ++x) {
      row.Add(PlaceText(columns[static_cast<size_t>(x)]),
              Measured(map.values[static_cast<size_t>(y * map.n_columns + x)]));
    }
    rows.push_back(std::move(row));
  }
}

Record PanelRecord(const LineChart& chart) {
  List all;
  for (const LineChart::Series& series : chart.series) {
    Record one = {{"name", series.name}, {"x", Measured(series.x)}, {"y", Measured(series.y)}};
    if (!series.labels.empty()) one.Add("labels", MakeList(series.labels));
    if (!series.errors.empty()) one.Add("errors", Measured(series.errors));
    all.emplace_back(std::move(one));
  }
  return {{"x", chart.x.label}, {"y", chart.y.label}, {"series", std::move(all)}};
}

Record PanelRecord(const BarChart& chart) {
  List all;
  for (const BarChart::Series& series : chart.series) {
    all.emplace_back(Record{{"name", series.name}, {"values", Measured(series.values)}});
  }
  return {{"x", chart.x_label},
          {"y", chart.y.label},
          {"categories", MakeList(chart.categories)},
          {"series", std::move(all)}};
}

Record PanelRecord(const Histogram& chart) {
  return {{"x", chart.x.label},
          {"y", chart.y.label},
          {"edges", MakeList(chart.edges)},
          {"counts", Measured(chart.counts)}};
}

Record PanelRecord(const HeatMap& map) {
  List values;
  for (auto row = map.values.begin(); row != map.values.end(); row += map.n_columns) {
    values.emplace_back(Measured(std::vector<double>(row, row + map.n_columns)));
  }
  return {{"x", map.x.label},
          {"y", map.y.label},
          {"value", map.value_label},
          {"columns", PlaceList(map.column_names, map.x, map.n_columns)},
          {"rows", PlaceList(map.row_names, map.y, map.n_rows)},
          {"values", std::move(values)}};
}

}  // namespace

std::vector<Record> DataRecords(const Figure& figure) {
  std::vector<Record> rows;
  for (const Figure::Panel& panel : figure.panels) {
    std::visit([&](const auto& chart) { AddRows(figure, panel, chart, rows); }, panel.chart);
  }
  return rows;
}

List PanelList(const Figure& figure) {
  List panels;
  for (const Figure::Panel& panel : figure.panels) {
    Record record = {{"title", panel.title}};
    Record data = std::visit([](const auto& chart) { return PanelRecord(chart); }, panel.chart);
    for (Field& field : data.fields) record.fields.push_back(std::move(field));
    panels.emplace_back(std::move(record));
  }
  return panels;
}

}  // namespace winnow::report
