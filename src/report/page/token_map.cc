#include "report/page/token_map.h"

#include <algorithm>
#include <cstdint>

#include "report/page/page.h"
#include "report/page/svg.h"
#include "report/page/token_map_html.h"

namespace winnow::report {
namespace {

constexpr size_t kMaxTokensInSvg = 3000;

// The shades that a reader can tell apart, in the order of the legend. page.js uses the same
// classes.
struct Shade {
  const char* css_class;
  const char* meaning;
};
constexpr Shade kShades[] = {
    {"k4", "kept in every head"},     {"k3", "in most"}, {"k2", "in some"}, {"k1", "in few"},
    {"m", "only merged into others"}, {"k0", "evicted"}};

const char* ShadeName(const TokenShares& shares) {
  if (shares.kept <= 0) return shares.merged > 0 ? "m" : "k0";
  if (shares.kept >= 1) return "k4";
  return shares.kept * 3 < 1 ? "k1" : shares.kept * 3 < 2 ? "k2" : "k3";
}

bool HasMerged(const TokenMap& map) {
  for (const TokenMap::View& view : map.views) {
    for (const auto& heads : view.states) {
      for (const std::string& states : heads) {
        if (states.find(TokenMap::kMerged) != std::string::npos) return true;
      }
    }
  }
  return false;
}

// The view that is shown if there is no choice: in print, in files, without a script.
std::string FirstChoice(const TokenMap& map) {
  return map.views.front().name + ", all layers, all KV heads";
}

// Makes carriage returns visible: they are half of every line end in texts from Windows.
std::string WithReturns(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\r') {
      shown += "␍";
    } else {
      shown += c;
    }
  }
  return shown;
}

// Makes line feeds visible too; they still end the line.
std::string WithLineEnds(std::string_view text) {
  std::string shown;
  for (const char c : WithReturns(text)) {
    if (c == '\n') shown += "↵";
    shown += c;
  }
  return shown;
}

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Lays out tokens as lines of fixed-width letters.
class Typesetter {
 public:
  void Add(std::string_view token, std::string_view shade) {
    while (!token.empty()) {
      const size_t feed = token.find('\n');
      AddPiece(WithReturns(token.substr(0, feed)) + (feed == std::string_view::npos ? "" : "↵"),
               shade);
      if (feed == std::string_view::npos) return;
      NewLine();
      token.remove_prefix(feed + 1);
    }
  }
  Drawing Take() {
    drawing_.body = "<g class=\"tokens\">" + drawing_.body + "</g>";
    drawing_.width = kLetters * kLetter;
    drawing_.height = (line_ + 1) * kLine;
    return std::move(drawing_);
  }

 private:
  static constexpr double kLetter = 7.25, kLine = 19;
  static constexpr size_t kLetters = 100;

  void NewLine() {
    ++line_;
    column_ = 0;
  }
  void AddPiece(const std::string& piece, std::string_view shade) {
    const size_t n = std::min(CharactersIn(piece), kLetters);
    if (n == 0) return;
    if (column_ + n > kLetters) NewLine();
    const double x = static_cast<double>(column_) * kLetter;
    const double y = line_ * kLine;
    const double width = static_cast<double>(n) * kLetter;
    drawing_.AddRect(x, y + 1, width, kLine - 2, "class=\"" + std::string(shade) + "\"");
    drawing_.body += "<text x=\"" + Px(x) + "\" y=\"" + Px(y + 14) + "\" textLength=\"" +
                     Px(width) + "\" lengthAdjust=\"spacingAndGlyphs\" class=\"" +
                     std::string(shade) + "\">" + Escaped(piece) + "</text>";
    column_ += n;
  }

  Drawing drawing_;
  size_t column_ = 0;
  int line_ = 0;
};

Drawing DrawKey(bool has_merged) {
  Drawing key;
  double x = 0;
  for (const Shade& shade : kShades) {
    if (std::string_view(shade.css_class) == "m" && !has_merged) continue;
    key.AddRect(x, 2, 16, 13, "class=\"" + std::string(shade.css_class) + "\"");
    // Evicted tokens have no colour: a frame makes their swatch visible.
    key.AddRect(x, 2, 16, 13, "class=\"axis\" fill=\"none\"");
    key.Add({.x = x + 22, .y = 13, .text = shade.meaning});
    x += 22 + TextWidth(shade.meaning) + 12;
  }
  key.width = x;
  key.height = 24;
  return key;
}

}  // namespace

std::vector<TokenShares> CountTokenShares(const TokenMap::View& view, size_t n_tokens) {
  std::vector<TokenShares> shares(n_tokens);
  double n_heads = 0;
  for (const auto& heads : view.states) {
    for (const std::string& states : heads) {
      ++n_heads;
      for (size_t i = 0; i < n_tokens; ++i) {
        if (states[i] == TokenMap::kKept) ++shares[i].kept;
        if (states[i] == TokenMap::kMerged) ++shares[i].merged;
      }
    }
  }
  for (TokenShares& share : shares) {
    share.kept /= n_heads;
    share.merged /= n_heads;
  }
  return shares;
}

std::string RunLengths(std::string_view states) {
  std::string runs;
  while (!states.empty()) {
    const size_t n = std::min(states.find_first_not_of(states[0]), states.size());
    runs += std::to_string(n) + states[0];
    states.remove_prefix(n);
  }
  return runs;
}

std::string TokenMapHtml(const TokenMap& map) {
  std::string html = "<figure class=\"token-map\" id=\"" + Escaped(map.name) + "\"";
  if (map.n_prompt > 0) html += " data-prompt=\"" + std::to_string(map.n_prompt) + "\"";
  html += ">\n<h3>" + Escaped(map.title) + "</h3>\n<div class=\"key\">";
  for (const Shade& shade : kShades) {
    if (std::string_view(shade.css_class) == "m" && !HasMerged(map)) continue;
    html += std::string("<span><i class=\"") + shade.css_class + "\">text</i>" + shade.meaning +
            "</span>";
  }
  // The script shows the reader's choice here.
  html +=
      "</div>\n<div class=\"shown\">" + Escaped(FirstChoice(map)) + "</div>\n<div class=\"map\">";
  const std::vector<TokenShares> shares = CountTokenShares(map.views.front(), map.tokens.size());
  for (size_t i = 0; i < map.tokens.size(); ++i) {
    const bool marked = !map.marked.empty() && map.marked[i];
    html += std::string("<i class=\"") + ShadeName(shares[i]) + "\"" +
            (marked ? " data-marked=\"\">" : ">") + Escaped(WithLineEnds(map.tokens[i])) + "</i>";
  }
  html += "</div>\n";
  if (!map.caption.empty()) html += "<figcaption>" + Escaped(map.caption) + "</figcaption>\n";
  return html + JsonElement("states", StateData(map)) + "</figure>\n";
}

Value EvictionData(const TokenMap::View& view) {
  List layers;
  for (const auto& heads : view.evicted_at) {
    List of_layer;
    for (const std::vector<int32_t>& of_head : heads) of_layer.emplace_back(MakeList(of_head));
    layers.emplace_back(std::move(of_layer));
  }
  return layers;
}

Value StateData(const TokenMap& map) {
  List views;
  for (const TokenMap::View& view : map.views) {
    List layers;
    for (const auto& heads : view.states) {
      List runs;
      for (const std::string& states : heads) runs.emplace_back(RunLengths(states));
      layers.emplace_back(std::move(runs));
    }
    Record record = {{"name", view.name}, {"states", std::move(layers)}};
    if (!view.evicted_at.empty()) record.Add("evicted_at", EvictionData(view));
    views.emplace_back(std::move(record));
  }
  return views;
}

std::vector<Record> DataRecords(const TokenMap& map) {
  std::vector<Record> rows;
  for (size_t i = 0; i < map.tokens.size(); ++i) {
    rows.push_back({{"position", static_cast<int64_t>(i)}, {"token", map.tokens[i]}});
  }
  for (const TokenMap::View& view : map.views) {
    const std::vector<TokenShares> shares = CountTokenShares(view, map.tokens.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      rows[i].Add(view.name + " kept", shares[i].kept);
      rows[i].Add(view.name + " merged", shares[i].merged);
    }
  }
  return rows;
}

std::string ToSvg(const TokenMap& map) {
  const size_t n = std::min(map.tokens.size(), kMaxTokensInSvg);
  const std::vector<TokenShares> shares = CountTokenShares(map.views.front(), map.tokens.size());
  Typesetter typesetter;
  for (size_t i = 0; i < n; ++i) typesetter.Add(map.tokens[i], ShadeName(shares[i]));
  Drawing drawing = DrawKey(HasMerged(map));
  drawing.Append(typesetter.Take(), 6);
  Drawing note;
  std::string text = FirstChoice(map);
  if (n < map.tokens.size()) {
    text +=
        "; the first " + std::to_string(n) + " of " + std::to_string(map.tokens.size()) + " tokens";
  }
  note.Add({.x = 0, .y = 13, .text = text, .css_class = "label"});
  note.height = 18;
  drawing.Append(note, 4);
  return SvgFile(drawing, map.title);
}

}  // namespace winnow::report
