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

// Results as one HTML page that needs no other file, no network and no script.
namespace winnow::report {

// Rows with the same columns (those of the first row).
struct Table {
  std::string name;  // base name of its files
  std::string title;
  std::string caption;
  std::vector<Record> rows;
  // [row][column] "#id" in the page that a cell links to; empty: none.
  std::vector<std::vector<std::string>> links = {};
};

// A collapsed table. It opens when its title is clicked or a link leads to it.
struct Fold {
  std::string id;  // link target: letters, digits, '-'
  std::string title;
  std::string text;  // above the table
  std::vector<Record> rows;
};

// A page from top to bottom. All text is plain: markup in it is escaped.
class Page {
 public:
  // `facts` are shown below the title: model, method, machine, version, command.
  Page(std::string title, std::string introduction, Record facts = {});

  void AddSection(std::string title, std::string text = "");
  void AddText(std::string text);  // a paragraph; empty lines separate several
  void AddTable(Table table);
  void AddFigure(Figure figure);
  void AddTokenMap(TokenMap map);
  void AddDetails(Fold fold);  // writes no files

  std::string Html() const;

  // Writes the page to `path` ("F.html") and, beside it, a folder F (the path without its
  // extension; "F.files" if it has none) with every figure and token map as NAME.svg and the data
  // of every figure, token map and table as NAME.csv and NAME.json (data.h). A name that is already
  // taken gets a number: NAME-2. Error: the disk.
  Result<void> Write(const std::string& path) const;
  // The path of that folder.
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
