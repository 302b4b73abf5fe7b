#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "report/page/chart.h"
#include "report/page/palette.h"
#include "report/page/token_map.h"
#include "report/record.h"

// Results to look at: one HTML file that needs nothing else, neither network nor script.
namespace winnow::report {

// Rows of the same columns (those of the first).
struct Table {
  std::string name;  // of its files
  std::string title;
  std::string caption;
  std::vector<Record> rows;
  // [row][column] "#id" in the page a cell leads to; empty: none.
  std::vector<std::vector<std::string>> links = {};
};

// A table that is shown when its title is clicked, or when a link leads to it.
struct Fold {
  std::string id;  // what links name: letters, digits, '-'
  std::string title;
  std::string text;  // above the table
  std::vector<Record> rows;
};

// A page from top to bottom. All text is plain: what looks like markup is shown as it is.
class Page {
 public:
  // `facts` stand below the title: model, method, machine, version, command.
  Page(std::string title, std::string introduction, Record facts = {});

  void AddSection(std::string title, std::string text = "");
  void AddText(std::string text);  // a paragraph; empty lines separate several
  void AddTable(Table table);
  void AddFigure(Figure figure);
  void AddTokenMap(TokenMap map);
  void AddFold(Fold fold);  // has no files

  std::string Html() const;

  // Writes the page to `path` ("F.html") and, beside it, a folder F (the path without its
  // extension; "F.files" if it has none) with every figure as NAME.svg and the data of every figure
  // and table as NAME.csv and NAME.json (data.h). Figures and tables of one name get numbers:
  // NAME-2. Error: the disk.
  Result<void> Write(const std::string& path) const;
  // That folder.
  static std::string FigureFolder(const std::string& path);

 private:
  struct Section {
    std::string title;
  };
  struct Text {
    std::string text;
  };
  using Part = std::variant<Section, Text, Table, Figure, TokenMap, Fold>;
  Palette PaletteOfFigures() const;
  std::string FreeName(std::string_view wanted);

  std::string title_, introduction_;
  Record facts_;
  std::vector<Part> parts_;
  std::vector<std::string> names_;
};

// A figure as an SVG file that follows the reader's light or dark scheme.
std::string ToSvg(const Figure& figure);
// A token map as an SVG file: the first view, all layers and heads.
std::string ToSvg(const TokenMap& map);

}  // namespace winnow::report
