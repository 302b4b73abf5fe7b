#include "report/page/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "report/page/figure.h"

namespace winnow::report {
namespace {

bool Holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

size_t CountOccurrences(const std::string& text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

LineChart Lines() {
  return {.x = {.label = "tokens", .scale = Scale::kLog10, .from = {}, .to = {}},
          .y = {.label = "nats per token", .from = {}, .to = {}},
          .series = {{.name = "full", .x = {1, 10, 100}, .y = {3, 2, 1}},
                     {.name = "h2o", .x = {1, 10, 100}, .y = {3, NAN, 2}}}};
}

BarChart Bars() {
  return {.x_label = "layer",
          .categories = {"0", "1"},
          .y = {.label = "kept, share", .from = {}, .to = {}},
          .series = {{.name = "ems", .values = {0.5, 1}}, {.name = "d2o", .values = {0.25, NAN}}}};
}

Histogram Counts() {
  return {.x = {.label = "position", .from = {}, .to = {}},
          .y = {.label = "entries", .from = {}, .to = {}},
          .edges = {0, 8, 16},
          .counts = {3, 5}};
}

HeatMap Map() {
  return {.x = {.label = "length, tokens", .from = {}, .to = {}},
          .y = {.label = "depth, %", .from = {}, .to = {}},
          .n_rows = 2,
          .n_columns = 3,
          .values = {1, 0.5, NAN, 0, 0.25, 1},
          .column_names = {"512", "1024", "2048"},
          .row_names = {"0", "100"},
          .value_label = "exact match",
          .from = {},
          .to = {}};
}

Figure Single(Chart chart) {
  return {.name = "one", .title = "A title", .caption = "A caption", .panels = {{"", chart}}};
}

TEST(Page, EveryChartNamesItsAxesAndItsSeries) {
  const std::string lines = ToSvg(Single(Lines()));
  for (const char* text : {">tokens<", ">nats per token<", ">full<", ">h2o<", ">100<"}) {
    EXPECT_TRUE(Holds(lines, text)) << text;
  }
  const std::string bars = ToSvg(Single(Bars()));
  for (const char* text : {">layer<", ">kept, share<", ">ems<", ">d2o<", ">0<", ">1<"}) {
    EXPECT_TRUE(Holds(bars, text)) << text;
  }
  const std::string histogram = ToSvg(Single(Counts()));
  for (const char* text : {">position<", ">entries<", "<title>8 to 16\n5</title>"}) {
    EXPECT_TRUE(Holds(histogram, text)) << text;
  }
  const std::string map = ToSvg(Single(Map()));
  for (const char* text : {">length, tokens<", ">depth, %<", ">2048<", ">exact match<",
                           "<title>length, tokens 1024\ndepth, % 100\nexact match 0.25</title>"}) {
    EXPECT_TRUE(Holds(map, text)) << text;
  }
}

TEST(Page, WhatWasNotMeasuredIsNotDrawn) {
  // h2o's line has a gap: two pieces of one point each.
  EXPECT_EQ(CountOccurrences(ToSvg(Single(Lines())), "h0.1"), 2U);
  EXPECT_EQ(CountOccurrences(ToSvg(Single(Map())), "exact match "), 5U);  // of six cells
  EXPECT_EQ(CountOccurrences(ToSvg(Single(Bars())), "<title>0\n"), 2U);
  EXPECT_EQ(CountOccurrences(ToSvg(Single(Bars())), "<title>1\n"), 1U);
}

TEST(Page, NarrowCellsShowTwoDigits) {
  HeatMap map = Map();
  map.n_columns = 30;
  map.values.assign(60, 100.0 / 3);
  map.values[0] = 100;
  map.values[1] = 0;
  map.column_names.assign(30, "a");
  map.show_values = true;
  const std::string svg = ToSvg(Single(map));
  EXPECT_EQ(CountOccurrences(svg, ">33<"), 58U);
  EXPECT_TRUE(Holds(svg, ">100<"));
  EXPECT_TRUE(Holds(svg, "exact match 33.3"));  // in full in the tooltip
  for (double& value : map.values) value = -12345;
  EXPECT_EQ(CountOccurrences(ToSvg(Single(map)), ">-12"), 0U)
      << "a number that does not fit is left out";
}

TEST(Page, LargeMapsAreOnePicture) {
  HeatMap map = Map();
  map.n_rows = 50;
  map.n_columns = 60;
  map.values.assign(3000, 0.5);
  map.column_names.clear();
  map.row_names.clear();
  const std::string svg = ToSvg(Single(map));
  EXPECT_EQ(CountOccurrences(svg, "data:image/png;base64,"), 2U);  // light and dark
  EXPECT_LT(svg.size(), 20000U);
}

TEST(Page, PanelsShareAxesColoursAndLegend) {
  LineChart second = Lines();
  second.series = {{.name = "tova", .x = {1000}, .y = {7}}, second.series[1]};
  Figure figure = Single(Lines());
  figure.panels[0].title = "book 1";
  figure.panels.push_back({"book 2", second});
  EXPECT_EQ(SeriesNames(figure), (std::vector<std::string>{"full", "h2o", "tova"}));
  const Figure shared = WithSharedRanges(figure);
  for (const Figure::Panel& panel : shared.panels) {
    const auto& chart = std::get<LineChart>(panel.chart);
    EXPECT_EQ(chart.x.from, 1);
    EXPECT_EQ(chart.x.to, 1000);
    EXPECT_EQ(chart.y.to, 7);
  }
  const std::string svg = ToSvg(figure);
  EXPECT_EQ(CountOccurrences(svg, ">tova<"), 1U);
  EXPECT_EQ(CountOccurrences(svg, "<g>") + CountOccurrences(svg, "<g "),
            CountOccurrences(svg, "</g>"));
  EXPECT_TRUE(Holds(svg, ">book 2<"));
  EXPECT_EQ(CountOccurrences(svg, "class=\"line c1\""),
            3U);  // h2o: in the legend and in both panels
}

TEST(Page, SeriesPastTheColoursLookDifferent) {
  LineChart chart = Lines();
  chart.series.clear();
  for (int i = 0; i < 36; ++i)
    chart.series.push_back({.name = "s" + std::to_string(i), .x = {1, 2}, .y = {1, 2}});
  const std::string svg = ToSvg(Single(chart));
  for (const char* look : {"c0", "c11", "c0 dashed", "c11 dashed", "c0 dotted", "c11 dotted"}) {
    // Once in the legend, once in the chart.
    EXPECT_EQ(CountOccurrences(svg, "class=\"line " + std::string(look) + "\""), 2U) << look;
  }
}

TEST(Page, SeriesOfAGroupHaveOneColourInAllFigures) {
  const auto figure = [](std::string name,
                         std::vector<std::pair<std::string, std::string>> series) {
    LineChart chart = Lines();
    chart.series.clear();
    for (const auto& [of, group] : series) {
      chart.series.push_back({.name = of, .x = {1, 2}, .y = {1, 2}, .group = group});
    }
    Figure made = Single(chart);
    made.name = std::move(name);
    return made;
  };
  Palette palette;
  palette.Add(figure("a", {{"full", ""}, {"h2o", ""}}));
  palette.Add(figure("b", {{"h2o 0.5", "h2o"}, {"h2o 0.25", "h2o"}, {"tova", ""}, {"full", ""}}));
  EXPECT_EQ(palette.StyleNumber("full"), 0U);
  EXPECT_EQ(palette.StyleNumber("h2o"), 1U);
  EXPECT_EQ(palette.StyleNumber("h2o 0.5") % Palette::kColours, 1U);
  EXPECT_EQ(palette.StyleNumber("h2o 0.25") % Palette::kColours, 1U);
  EXPECT_NE(palette.StyleNumber("h2o 0.5"), palette.StyleNumber("h2o 0.25"));
  EXPECT_EQ(palette.StyleNumber("tova"), 2U);
}

TEST(Page, CellsLeadToFolds) {
  Page page("page", "");
  page.AddTable({.name = "t",
                 .title = "",
                 .caption = "",
                 .rows = {{{"a", "x"}, {"b", ""}}},
                 .links = {{"#fold", "#fold"}}});
  HeatMap map = Map();
  map.links.assign(map.values.size(), "#fold");
  map.missing = "could not be run";
  page.AddFigure(Single(map));
  page.AddDetails(
      {.id = "fold", .title = "samples", .text = "text", .rows = {{{"answer", "<b>"}}}});
  const std::string html = page.Html();
  EXPECT_TRUE(Holds(html, "<td><a href=\"#fold\">x</a></td><td></td>"));
  EXPECT_EQ(CountOccurrences(html, "<a href=\"#fold\"><rect"), 2 * 5U);  // wide and narrow
  EXPECT_EQ(CountOccurrences(html, "could not be run"), 2U);             // the cell without a value
  EXPECT_TRUE(Holds(html, "<summary id=\"fold\">samples</summary>"));
  EXPECT_TRUE(Holds(html, "&lt;b&gt;"));
}

TEST(Page, ErrorBars) {
  LineChart chart = Lines();
  chart.style = LineChart::Style::kMarkedLine;
  chart.series[0].errors = {0.1, 0, 0.1};
  EXPECT_EQ(CountOccurrences(ToSvg(Single(chart)), "class=\"error c0\""), 2U);
  BarChart bars = Bars();
  bars.series[0].errors = {0.1, NAN};
  EXPECT_EQ(CountOccurrences(ToSvg(Single(bars)), "class=\"error c0\""), 1U);
}

TEST(Page, HostileTextStaysText) {
  const std::string evil = "</title></script><script>alert(1)</script><img src=x onerror=\"a\">";
  Page page(evil, evil, {{evil, evil}});
  page.AddSection(evil, evil);
  page.AddTable({.name = evil, .title = evil, .caption = evil, .rows = {{{evil, evil}}}});
  Figure figure = Single(Lines());
  figure.name = figure.title = figure.caption = figure.panels[0].title = evil;
  auto& lines = std::get<LineChart>(figure.panels[0].chart);
  lines.x.label = lines.y.label = lines.series[0].name = evil;
  lines.series[0].labels = {evil, evil, evil};
  lines.style = LineChart::Style::kMarkedLine;
  page.AddFigure(figure);
  BarChart bars = Bars();
  bars.x_label = bars.categories[0] = bars.series[0].name = evil;
  page.AddFigure({.name = "b", .title = "", .caption = "", .panels = {{evil, bars}}});
  HeatMap map = Map();
  map.row_names[0] = map.value_label = evil;
  page.AddFigure({.name = "m", .title = "", .caption = "", .panels = {{evil, map}}});
  page.AddTokenMap({.name = evil,
                    .title = evil,
                    .caption = evil,
                    .tokens = {evil},
                    .views = {{.name = evil, .states = {{"k"}}}}});
  const std::string html = page.Html();
  EXPECT_FALSE(Holds(html, "<script>alert"));
  EXPECT_FALSE(Holds(html, "<img"));
  EXPECT_EQ(CountOccurrences(html, "<script>"), 1U);   // the page's own
  EXPECT_EQ(CountOccurrences(html, "</script>"), 3U);  // and its data: points, states
  EXPECT_FALSE(Holds(html, "onerror=\""));
}

TEST(Page, DataForTheScriptIsJson) {
  Page page("t", "");
  page.AddFigure(Single(Lines()));
  const std::string html = page.Html();
  const std::string begin = "<script type=\"application/json\" class=\"points\">";
  const size_t first = html.find(begin) + begin.size();
  const auto json =
      nlohmann::json::parse(html.substr(first, html.find("</script>", first) - first));
  EXPECT_EQ(json[0]["series"][1]["name"], "h2o");
  EXPECT_EQ(json[0]["series"][1]["y"], nlohmann::json::parse("[3.0,null,2.0]"));
}

TEST(Page, NeedsNothingFromOutside) {
  Page page("t", "");
  page.AddFigure(Single(Map()));
  const std::string html = page.Html();
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("}) {
    // The only address is the SVG namespace, with which the script creates elements.
    EXPECT_EQ(CountOccurrences(html, outside), outside == std::string("http://") ? 1U : 0U)
        << outside;
  }
}

TEST(Page, TablesAlignNumbersAndKeepTheirDigits) {
  Page page("t", "");
  page.AddTable({.name = "t",
                 .title = "",
                 .caption = "",
                 .rows = {{{"method", "full"}, {"ppl", 6.123456}, {"bytes", int64_t{3145728}}},
                          {{"method", "h2o"}, {"ppl", Value()}, {"bytes", int64_t{1}}}}});
  const std::string html = page.Html();
  EXPECT_TRUE(Holds(html,
                    "<td>full</td><td class=\"number\">6.123</td>"
                    "<td class=\"number\">3145728</td>"));
  EXPECT_TRUE(Holds(html, "<td>h2o</td><td class=\"number\"></td>"));
}

TEST(Page, WritesFiguresAndDataBesideIt) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "winnow_page_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  Page page("t", "");
  page.AddFigure(Single(Counts()));
  page.AddFigure(Single(Bars()));
  page.AddTable({.name = "../a b", .title = "", .caption = "", .rows = {{{"n", 1}}}});
  ASSERT_TRUE(page.Write((folder / "p.html").string()));
  EXPECT_TRUE(Holds(Read(folder / "p.html"), "<h3>A title</h3>"));
  EXPECT_EQ(Read(folder / "p/one.csv"), "from,to,entries\n0.0,8.0,3.0\n8.0,16.0,5.0\n");
  EXPECT_TRUE(Holds(Read(folder / "p/one-2.svg"), "xmlns=\"http://www.w3.org/2000/svg\""));
  const auto json = nlohmann::json::parse(Read(folder / "p/one-2.json"));
  EXPECT_EQ(json["panels"][0]["series"][1]["values"], nlohmann::json::parse("[0.25, null]"));
  EXPECT_EQ(Read(folder / "p/a-b.csv"), "n\n1\n");
  EXPECT_FALSE(page.Write((folder / "absent/p.html").string()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace winnow::report
