#pragma once

#include <string>
#include <string_view>

#include "report/record.h"

// Helpers for writing SVG and HTML: escaping, numbers, text.
namespace winnow::report {

// Makes any bytes safe inside an element or a quoted attribute: markup is escaped; invalid UTF-8
// and control characters (except line feed and tab) become U+FFFD.
std::string Escaped(std::string_view text);

// Data for the page's script, as an element of that class. Nothing in it can end the element.
std::string JsonElement(std::string_view css_class, const Value& value);

// A coordinate: at most two decimals, never an exponent.
std::string Px(double value);
// A number for the script: the shortest text that reads back exactly.
std::string Exact(double value);

// The approximate width of `text` in px, in letters of 12 px.
double TextWidth(std::string_view text);
// `text` shortened to at most `px`, with an ellipsis if anything was cut.
std::string Shortened(std::string_view text, double px);

// Part of an image, its origin at the top left.
struct Drawing {
  std::string body;
  double width = 0;
  double height = 0;

  enum class Anchor { kStart, kMiddle, kEnd };
  struct Label {
    double x = 0, y = 0;  // of the baseline
    std::string_view text;
    Anchor anchor = Anchor::kStart;
    std::string_view css_class = "";
    double degrees = 0;  // rotation about (x, y)
  };
  void Add(const Label& label);
  void AddLine(double x1, double y1, double x2, double y2, std::string_view css_class);
  // `title` is the tooltip that browsers show; empty: none.
  void AddRect(double x, double y, double w, double h, std::string_view attributes,
               std::string_view title = "");
  // Draws `other` with its origin at (x, y); does not change the size.
  void Place(const Drawing& other, double x, double y);
  // Adds `other` below the present content; the drawing grows.
  void Append(const Drawing& other, double gap = 0);
};

// An <svg> element. InlineSvg relies on the page's style sheet; SvgFile includes the styles it
// needs.
//   label  text for screen readers
std::string InlineSvg(const Drawing& drawing, std::string_view css_class, std::string_view label);
std::string SvgFile(const Drawing& drawing, std::string_view label);

}  // namespace winnow::report
