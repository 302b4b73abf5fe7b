#pragma once

#include <string>
#include <string_view>

#include "report/record.h"

// Writing SVG and HTML by hand: escaping, numbers, text.
namespace winnow::report {

// Text that can stand in an element or in a quoted attribute, whatever its bytes are: markup is
// escaped, invalid UTF-8 and control characters (line feed and tab excepted) become U+FFFD.
std::string Escaped(std::string_view text);

// Data for the page's script, as an element of that class. Nothing in it can end the element.
std::string JsonElement(std::string_view css_class, const Value& value);

// A coordinate: at most two decimals, never an exponent.
std::string Px(double value);
// A number for the script, as exact as needed.
std::string Exact(double value);

// What `text` takes in a line of 12 px letters, roughly, in px.
double TextWidth(std::string_view text);
// At most `px` of it, with an ellipsis where something is missing.
std::string Shortened(std::string_view text, double px);

// Part of a picture, its origin at the top left.
struct Drawing {
  std::string body;
  double width = 0;
  double height = 0;

  enum class Anchor { kStart, kMiddle, kEnd };
  struct Label {
    double x = 0, y = 0;  // of the base line
    std::string_view text;
    Anchor anchor = Anchor::kStart;
    std::string_view css_class = "";
    double degrees = 0;  // degrees, about (x, y)
  };
  void Add(const Label& label);
  void AddLine(double x1, double y1, double x2, double y2, std::string_view css_class);
  // `title` is shown by browsers where the pointer rests; none if empty.
  void AddRect(double x, double y, double w, double h, std::string_view attributes,
               std::string_view title = "");
  // `other` with its origin at (x, y); does not change the size.
  void Place(const Drawing& other, double x, double y);
  // `other` below what there is; the picture grows.
  void Append(const Drawing& other, double gap = 0);
};

// An <svg> element. Within a page the page's style serves it; a file of its own brings it along.
//   label  what a screen reader says
std::string InlineSvg(const Drawing& drawing, std::string_view css_class, std::string_view label);
std::string SvgFile(const Drawing& drawing, std::string_view label);

}  // namespace winnow::report
