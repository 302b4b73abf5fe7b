#include "report/page/results.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::report {
namespace {

std::vector<Record> Rows() {
  return {
      {{"method", "h2o"}, {"bytes", int64_t{200}}, {"score", 0.5}, {"length", int64_t{1024}}},
      {{"method", "h2o"}, {"bytes", int64_t{100}}, {"score", 0.25}, {"length", int64_t{512}}},
      {{"method", "ems"}, {"bytes", int64_t{100}}, {"score", 0.75}, {"length", int64_t{512}}},
      {{"method", "ems"}, {"bytes", int64_t{100}}, {"score", 0.25}, {"length", int64_t{512}}},
      {{"method", "ems"}, {"bytes", int64_t{150}}, {"score", Value()}, {"length", int64_t{2048}}}};
}

TEST(Results, FrontsHaveASeriesForEachMethodInTheOrderOfX) {
  const Figure figure = MakeFigure({.kind = Plot::Kind::kMarkedLines,
                                    .name = "front",
                                    .title = "",
                                    .caption = "",
                                    .x = {.name = "bytes", .label = "cache, bytes"},
                                    .y = {.name = "score", .label = ""},
                                    .series = "method"},
                                   Rows());
  ASSERT_EQ(figure.panels.size(), 1U);
  const auto& chart = std::get<LineChart>(figure.panels[0].chart);
  EXPECT_EQ(chart.x.label, "cache, bytes");
  EXPECT_EQ(chart.y.label, "score");
  ASSERT_EQ(chart.series.size(), 2U);
  EXPECT_EQ(chart.series[0].name, "h2o");
  EXPECT_EQ(chart.series[0].x, (std::vector<double>{100, 200}));
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(chart.series[1].x.size(), 2U);  // the row without a score is left out
}

TEST(Results, HeatMapsHaveAPanelForEachMethodAndMeansInTheirCells) {
  const Figure figure = MakeFigure({.kind = Plot::Kind::kHeatMap,
                                    .name = "grid",
                                    .title = "",
                                    .caption = "",
                                    .x = {.name = "length", .label = ""},
                                    .y = {.name = "bytes", .label = ""},
                                    .value = {.name = "score", .label = ""},
                                    .panel = "method"},
                                   Rows());
  ASSERT_EQ(figure.panels.size(), 2U);
  EXPECT_EQ(figure.panels[1].title, "ems");
  const auto& map = std::get<HeatMap>(figure.panels[1].chart);
  EXPECT_EQ(map.column_names, (std::vector<std::string>{"512", "1024", "2048"}));
  EXPECT_EQ(map.row_names, (std::vector<std::string>{"100", "150", "200"}));
  EXPECT_EQ(map.values[0], 0.5);  // of 0.75 and 0.25
  for (size_t i = 1; i < map.values.size(); ++i) EXPECT_TRUE(std::isnan(map.values[i])) << i;
}

TEST(Results, BarsStandInTheOrderOfTheRows) {
  const Figure figure = MakeFigure({.kind = Plot::Kind::kBars,
                                    .name = "bars",
                                    .title = "",
                                    .caption = "",
                                    .x = {.name = "method", .label = ""},
                                    .y = {.name = "score", .label = ""}},
                                   Rows());
  const auto& chart = std::get<BarChart>(figure.panels[0].chart);
  EXPECT_EQ(chart.categories, (std::vector<std::string>{"h2o", "ems"}));
  EXPECT_EQ(chart.series[0].values, (std::vector<double>{0.375, 0.5}));
}

TEST(Results, NothingMeasuredIsNoFigure) {
  Results results = {.title = "t",
                     .introduction = "",
                     .facts = {},
                     .rows = {},
                     .plots = {{.kind = Plot::Kind::kHeatMap,
                                .name = "grid",
                                .title = "",
                                .caption = "",
                                .x = {.name = "a", .label = ""},
                                .y = {.name = "b", .label = ""},
                                .value = {.name = "c", .label = ""}}}};
  EXPECT_EQ(MakePage(results).Html().find("<figure"), std::string::npos);
}

TEST(Results, ThePageShowsSummariesPlotsAndAllRows) {
  Results results = {
      .title = "t",
      .introduction = "",
      .facts = {{"model", "tiny"}},
      .rows = Rows(),
      .plots = {{.kind = Plot::Kind::kBars,
                 .name = "bars",
                 .title = "Scores",
                 .caption = "",
                 .x = {.name = "method", .label = ""},
                 .y = {.name = "score", .label = ""}}},
      .tables = {{.name = "sum", .title = "Summary", .caption = "", .rows = {{{"n", 1}}}}}};
  const std::string html = MakePage(results).Html();
  const size_t summary = html.find("<h3>Summary</h3>");
  const size_t plot = html.find("<h3>Scores</h3>");
  const size_t rows = html.find("All measurements");
  EXPECT_LT(html.find("<dt>model</dt><dd>tiny</dd>"), summary);
  EXPECT_LT(summary, plot);
  EXPECT_LT(plot, rows);
  EXPECT_NE(rows, std::string::npos);
}

}  // namespace
}  // namespace winnow::report
