#include "report/page/page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/output_file.h"
#include "report/page/assets.h"
#include "report/page/axis.h"
#include "report/page/data.h"
#include "report/page/figure.h"
#include "report/page/svg.h"
#include "report/page/token_map_html.h"

namespace winnow::report {
namespace {

// Cells longer than this may break into several lines.
constexpr size_t kLongCell = 40;

std::string Paragraphs(std::string_view text) {
  std::string html;
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    if (end > 0) html += "<p>" + Escaped(text.substr(0, end)) + "</p>\n";
    text.remove_prefix(std::min(end + 2, text.size()));
  }
  return html;
}

bool IsNumber(const Value& value) {
  return std::holds_alternative<int64_t>(value.data) || std::holds_alternative<double>(value.data);
}

// Formats a cell for readers: measured numbers to four digits. The data files have all digits.
std::string CellText(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (std::holds_alternative<std::monostate>(value.data)) return "";
  if (const auto* yes = std::get_if<bool>(&value.data)) return *yes ? "yes" : "no";
  const auto* number = std::get_if<double>(&value.data);
  if (number == nullptr) return ToJson(value);
  if (std::isnan(*number)) return "nan";
  if (std::isinf(*number)) return *number > 0 ? "inf" : "-inf";
  if (std::abs(*number) < 1000 || std::abs(*number) >= 1e15) return NumberLabel(*number);
  return std::to_string(std::llround(*number));
}

// Whether all cells of a column are numbers or empty.
bool IsNumeric(const std::vector<Record>& rows, const std::string& column) {
  return std::all_of(rows.begin(), rows.end(), [&](const Record& row) {
    const Value* value = row.Find(column);
    return value == nullptr || IsNumber(*value) ||
           std::holds_alternative<std::monostate>(value->data);
  });
}

// The rows as a <table>; `links` as in Table.
std::string RowsHtml(const std::vector<Record>& rows,
                     const std::vector<std::vector<std::string>>& links) {
  std::string html = "<div class=\"scroll\"><table>\n<thead><tr>";
  const std::vector<Field> columns = rows.empty() ? std::vector<Field>() : rows.front().fields;
  std::vector<bool> numeric;
  for (const Field& column : columns) {
    numeric.push_back(IsNumeric(rows, column.name));
    html += std::string("<th") + (numeric.back() ? " class=\"number\"" : "") + ">" +
            Escaped(column.name) + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (size_t row = 0; row < rows.size(); ++row) {
    html += "<tr>";
    for (size_t i = 0; i < columns.size(); ++i) {
      const Value* value = rows[row].Find(columns[i].name);
      const std::string text = value == nullptr ? "" : CellText(*value);
      const char* css_class = numeric[i]                ? " class=\"number\""
                              : text.size() > kLongCell ? " class=\"long\""
                                                        : "";
      std::string cell = Escaped(text);
      if (!text.empty() && row < links.size() && i < links[row].size() && !links[row][i].empty()) {
        cell = "<a href=\"" + Escaped(links[row][i]) + "\">" + cell + "</a>";
      }
      html += std::string("<td") + css_class + ">" + cell + "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string TableHtml(const Table& table) {
  std::string html = "<figure id=\"" + Escaped(table.name) + "\">\n";
  if (!table.title.empty()) html += "<h3>" + Escaped(table.title) + "</h3>\n";
  html += RowsHtml(table.rows, table.links);
  if (!table.caption.empty()) html += "<figcaption>" + Escaped(table.caption) + "</figcaption>\n";
  return html + "</figure>\n";
}

std::string FoldHtml(const Fold& fold) {
  return "<details><summary id=\"" + Escaped(fold.id) + "\">" + Escaped(fold.title) +
         "</summary>\n" + Paragraphs(fold.text) +
         (fold.rows.empty() ? "" : RowsHtml(fold.rows, {})) + "</details>\n";
}

std::string FactsHtml(const Record& facts) {
  if (facts.fields.empty()) return "";
  std::string html = "<dl>\n";
  for (const Field& fact : facts.fields) {
    html += "<dt>" + Escaped(fact.name) + "</dt><dd>" + Escaped(CellText(fact.value)) + "</dd>\n";
  }
  return html + "</dl>\n";
}

Result<void> WriteData(const std::filesystem::path& stem, const std::vector<Record>& rows,
                       const Value& json) {
  WINNOW_TRY(WriteWholeFile(stem.string() + ".csv", ToCsv(rows)));
  return WriteWholeFile(stem.string() + ".json", ToJson(json) + "\n");
}

}  // namespace

Page::Page(std::string title, std::string introduction, Record facts)
    : title_(std::move(title)), introduction_(std::move(introduction)), facts_(std::move(facts)) {}

// A name that is a valid file name on any system and that no other part has.
std::string Page::FreeName(std::string_view wanted) {
  std::string stem;
  for (const char c : wanted) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-';
    stem += plain ? c : '-';
  }
  stem.erase(0, std::min(stem.find_first_not_of(".-"), stem.size()));
  if (stem.empty()) stem = "part";
  std::string name = stem;
  for (int n = 2; std::find(names_.begin(), names_.end(), name) != names_.end(); ++n) {
    name = stem + "-" + std::to_string(n);
  }
  names_.push_back(name);
  return name;
}

void Page::AddSection(std::string title, std::string text) {
  parts_.emplace_back(Section{std::move(title)});
  if (!text.empty()) AddText(std::move(text));
}
void Page::AddText(std::string text) { parts_.emplace_back(Text{std::move(text)}); }
void Page::AddTable(Table table) {
  table.name = FreeName(table.name);
  parts_.emplace_back(std::move(table));
}
void Page::AddFigure(Figure figure) {
  figure.name = FreeName(figure.name);
  parts_.emplace_back(std::move(figure));
}
void Page::AddDetails(Fold fold) { parts_.emplace_back(std::move(fold)); }
void Page::AddTokenMap(TokenMap map) {
  map.name = FreeName(map.name);
  parts_.emplace_back(std::move(map));
}

Palette Page::PaletteOfFigures() const {
  Palette palette;
  for (const Part& part : parts_) {
    if (const auto* figure = std::get_if<Figure>(&part)) palette.Add(*figure);
  }
  return palette;
}

std::string Page::Html() const {
  const Palette palette = PaletteOfFigures();
  std::string body, contents;
  int n_sections = 0;
  for (const Part& part : parts_) {
    if (const auto* section = std::get_if<Section>(&part)) {
      const std::string id = "section-" + std::to_string(++n_sections);
      body += "<h2 id=\"" + id + "\">" + Escaped(section->title) + "</h2>\n";
      contents += "<a href=\"#" + id + "\">" + Escaped(section->title) + "</a>\n";
    } else if (const auto* text = std::get_if<Text>(&part)) {
      body += Paragraphs(text->text);
    } else if (const auto* table = std::get_if<Table>(&part)) {
      body += TableHtml(*table);
    } else if (const auto* figure = std::get_if<Figure>(&part)) {
      body += FigureHtml(*figure, palette);
    } else if (const auto* map = std::get_if<TokenMap>(&part)) {
      body += TokenMapHtml(*map);
    } else if (const auto* fold = std::get_if<Fold>(&part)) {
      body += FoldHtml(*fold);
    }
  }
  if (n_sections >= 3) contents = "<nav>\n" + contents + "</nav>\n";
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         Escaped(title_) + "</title>\n<style>\n" + std::string(kColoursCss) +
         std::string(kChartCss) + std::string(kPageCss) + "</style>\n</head>\n<body>\n<h1>" +
         Escaped(title_) + "</h1>\n" + Paragraphs(introduction_) + FactsHtml(facts_) +
         (n_sections >= 3 ? contents : "") + body + "<script>\n" + std::string(kPageJs) +
         "</script>\n</body>\n</html>\n";
}

std::string Page::FigureFolder(const std::string& path) {
  const std::filesystem::path page(path);
  return page.has_extension() ? (page.parent_path() / page.stem()).string() : path + ".files";
}

Result<void> Page::Write(const std::string& path) const {
  const std::filesystem::path folder = FigureFolder(path);
  const Palette palette = PaletteOfFigures();
  std::error_code problem;
  std::filesystem::create_directory(folder, problem);
  if (problem) return Error{folder.string() + ": " + problem.message()};
  for (const Part& part : parts_) {
    if (const auto* table = std::get_if<Table>(&part)) {
      WINNOW_TRY(WriteData(folder / table->name, table->rows, MakeList(table->rows)));
    } else if (const auto* figure = std::get_if<Figure>(&part)) {
      WINNOW_TRY(WriteWholeFile(folder / (figure->name + ".svg"), ToSvg(*figure, palette)));
      WINNOW_TRY(WriteData(folder / figure->name, DataRecords(*figure),
                           Record{{"title", figure->title},
                                  {"caption", figure->caption},
                                  {"panels", PanelList(*figure)}}));
    } else if (const auto* map = std::get_if<TokenMap>(&part)) {
      WINNOW_TRY(WriteWholeFile(folder / (map->name + ".svg"), ToSvg(*map)));
      WINNOW_TRY(WriteData(folder / map->name, DataRecords(*map),
                           Record{{"title", map->title},
                                  {"caption", map->caption},
                                  {"tokens", MakeList(map->tokens)},
                                  {"views", StateData(*map)}}));
    }
  }
  return WriteWholeFile(path, Html());  // last: if the page exists, so do its files
}

}  // namespace winnow::report
