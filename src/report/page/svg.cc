#include "report/page/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "report/page/assets.h"

namespace winnow::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr double kLetterWidth = 7;                         // mean width of a letter at 12 px

// Length in bytes of the character that `text` begins with; 0 if it is ill-formed UTF-8 (RFC 3629)
// or not allowed in XML. Requires: `text` is not empty.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t n = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
  const bool too_large = lead == 0xF4 && byte(1) >= 0x90;
  const bool not_xml = lead == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;  // U+FFFE, U+FFFF
  return overlong || surrogate || too_large || not_xml ? 0 : n;
}

std::string_view EscapeChar(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

std::string Size(const Drawing& drawing) { return Px(drawing.width) + " " + Px(drawing.height); }

}  // namespace

std::string Escaped(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const size_t n = CharacterBytes(text);
    const char c = text[0];
    const bool control = n == 1 && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F);
    if (n == 0 || (control && c != '\n' && c != '\t')) {
      escaped += kReplacement;
    } else if (const std::string_view escape = EscapeChar(c); !escape.empty()) {
      escaped += escape;
    } else {
      escaped += text.substr(0, n);
    }
    text.remove_prefix(std::max<size_t>(n, 1));
  }
  return escaped;
}

std::string JsonElement(std::string_view css_class, const Value& value) {
  std::string json;
  for (const char c : ToJson(value)) {
    if (c == '<') {
      json += "\\u003c";  // no "</script>", no "<!--"
    } else {
      json += c;
    }
  }
  return "<script type=\"application/json\" class=\"" + std::string(css_class) + "\">" + json +
         "</script>\n";
}

std::string Px(double value) {
  std::array<char, 64> digits{};
  const double bounded = std::clamp(value, -1e6, 1e6);
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), bounded,
                                          std::chars_format::fixed, 2);
  std::string text(digits.data(), end);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string Exact(double value) {
  std::array<char, 64> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

double TextWidth(std::string_view text) {
  return kLetterWidth * static_cast<double>(std::count_if(
                            text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string Shortened(std::string_view text, double px) {
  if (TextWidth(text) <= px) return std::string(text);
  std::string shortened;
  double width = kLetterWidth;  // of the ellipsis
  for (const char c : text) {
    if ((c & 0xC0) != 0x80) {
      width += kLetterWidth;
      if (width > px) break;
    }
    shortened += c;
  }
  return shortened + "…";
}

void Drawing::Add(const Label& label) {
  body += "<text x=\"" + Px(label.x) + "\" y=\"" + Px(label.y) + "\"";
  if (label.anchor == Anchor::kMiddle) body += " text-anchor=\"middle\"";
  if (label.anchor == Anchor::kEnd) body += " text-anchor=\"end\"";
  if (!label.css_class.empty()) body += " class=\"" + std::string(label.css_class) + "\"";
  if (label.degrees != 0) {
    body +=
        " transform=\"rotate(" + Px(label.degrees) + " " + Px(label.x) + " " + Px(label.y) + ")\"";
  }
  body += ">" + Escaped(label.text) + "</text>";
}

void Drawing::AddLine(double x1, double y1, double x2, double y2, std::string_view css_class) {
  body += "<line x1=\"" + Px(x1) + "\" y1=\"" + Px(y1) + "\" x2=\"" + Px(x2) + "\" y2=\"" + Px(y2) +
          "\" class=\"" + std::string(css_class) + "\"/>";
}

void Drawing::AddRect(double x, double y, double w, double h, std::string_view attributes,
                      std::string_view title) {
  body += "<rect x=\"" + Px(x) + "\" y=\"" + Px(y) + "\" width=\"" + Px(w) + "\" height=\"" +
          Px(h) + "\" " + std::string(attributes);
  body += title.empty() ? "/>" : "><title>" + Escaped(title) + "</title></rect>";
}

void Drawing::Place(const Drawing& other, double x, double y) {
  body += "<g transform=\"translate(" + Px(x) + " " + Px(y) + ")\">" + other.body + "</g>\n";
}

void Drawing::Append(const Drawing& other, double gap) {
  if (other.height == 0) return;
  const double y = height == 0 ? 0 : height + gap;
  Place(other, 0, y);
  height = y + other.height;
  width = std::max(width, other.width);
}

std::string InlineSvg(const Drawing& drawing, std::string_view css_class, std::string_view label) {
  return "<svg class=\"chart " + std::string(css_class) + "\" viewBox=\"0 0 " + Size(drawing) +
         "\" style=\"max-width:" + Px(drawing.width) + "px\" role=\"img\" aria-label=\"" +
         Escaped(label) + "\">" + drawing.body + "</svg>\n";
}

std::string SvgFile(const Drawing& drawing, std::string_view label) {
  constexpr double kMargin = 12;
  const double width = drawing.width + 2 * kMargin;
  const double height = drawing.height + 2 * kMargin;
  Drawing placed;
  placed.Place(drawing, kMargin, kMargin);
  const std::string size = Px(width) + "\" height=\"" + Px(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"" + size +
         "\" viewBox=\"0 0 " + Px(width) + " " + Px(height) + "\">\n<title>" + Escaped(label) +
         "</title>\n<style>" + std::string(kColoursCss) + std::string(kChartCss) +
         "</style>\n<rect class=\"paper\" width=\"" + size + "\"/>\n" + placed.body + "</svg>\n";
}

}  // namespace winnow::report
