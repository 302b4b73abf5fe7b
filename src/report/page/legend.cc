#include <algorithm>
#include <cmath>

#include "report/page/colours.h"
#include "report/page/draw.h"

namespace winnow::report {
namespace {

constexpr double kLine = 18;
constexpr double kSwatch = 22;

}  // namespace

Drawing SeriesLegend(const Canvas& canvas, bool lines, double width) {
  const std::span<const std::string> names = canvas.series;
  Drawing legend;
  if (names.size() < 2) return legend;
  legend.width = width;
  const double swatch = lines ? kSwatch : 12;
  double x = 0;
  double y = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = Shortened(names[i], width - swatch - 8);
    const double needed = swatch + 6 + TextWidth(name) + 14;
    if (x > 0 && x + needed > width) {
      x = 0;
      y += kLine;
    }
    const SeriesStyle style = FindStyle(canvas, names[i]);
    // The script makes this a switch that hides and shows the series.
    legend.body += "<g class=\"legend\" data-series=\"" + std::to_string(style.place) + "\">";
    legend.AddRect(x - 4, y, needed - 6, kLine, "class=\"hit\"");
    if (lines) {
      legend.body += "<path d=\"M" + Px(x) + " " + Px(y + 9) + "h" + Px(kSwatch) +
                     "\" class=\"line " + SeriesClass(style.number) + "\"/>";
      AddMark(legend, style, x + kSwatch / 2, y + 9, "");
    } else {
      legend.AddRect(x, y + 3, 12, 12, "class=\"bar " + SeriesClass(style.number) + "\"");
    }
    legend.Add({.x = x + swatch + 6, .y = y + 13, .text = name});
    legend.body += "</g>";
    x += needed;
  }
  legend.height = y + kLine;
  return legend;
}

Drawing ColourLegend(const HeatMap& map, double width) {
  constexpr int kSteps = 64;
  constexpr double kBar = 10;
  Drawing legend;
  legend.width = width;
  const double bar_width = std::min(width - 24, 260.0);
  const Range range = ColourRange(map);
  const std::string label = Shortened(map.value_label, width);
  legend.Add({.x = 0, .y = 12, .text = label, .css_class = "label"});
  const double step = bar_width / kSteps;
  for (int i = 0; i < kSteps; ++i) {
    // Each rectangle covers the rest of the bar, so that no seam shows.
    legend.AddRect(i * step, kLine, bar_width - i * step, kBar,
                   HeatFill(static_cast<double>(i) / (kSteps - 1)));
  }
  const AxisMap along = {Scale::kLinear, range, 0, bar_width};
  for (const Tick& tick : MakeTicks(Scale::kLinear, range, static_cast<int>(bar_width / 60))) {
    const double x = along.At(tick.value);
    legend.AddLine(x, kLine + kBar, x, kLine + kBar + 3, "axis");
    const bool at_start = x < TextWidth(tick.label) / 2;
    legend.Add({.x = at_start ? 0 : x,
                .y = kLine + kBar + 15,
                .text = tick.label,
                .anchor = at_start ? Drawing::Anchor::kStart : Drawing::Anchor::kMiddle});
  }
  legend.height = kLine + kBar + 20;
  return legend;
}

}  // namespace winnow::report
