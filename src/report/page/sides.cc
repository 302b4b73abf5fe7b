#include <algorithm>
#include <cmath>

#include "report/page/draw.h"

namespace winnow::report {
namespace {

using Anchor = Drawing::Anchor;

constexpr double kLine = 16;        // height of a line of text
constexpr double kGap = 6;          // between an axis and its numbers
constexpr double kPxPerXTick = 80;  // labels closer than this would overlap
constexpr double kPxPerYTick = 45;
constexpr double kLabelDegrees = -35;  // of names that do not fit side by side
constexpr double kMaxNamePx = 170;
constexpr double kLetterHeight = 4;  // from a line's middle to its baseline

double Widest(std::span<const std::string> names) {
  double widest = 0;
  for (const std::string& name : names) widest = std::max(widest, TextWidth(name));
  return std::min(widest, kMaxNamePx);
}

double WidestLabel(std::span<const Tick> ticks) {
  double widest = 0;
  for (const Tick& tick : ticks) widest = std::max(widest, TextWidth(tick.label));
  return widest;
}

int TicksWithin(double px, double px_per_tick) {
  return std::max(2, static_cast<int>(px / px_per_tick));
}

// The stride at which names are shown, so that each has `wanted` of the `px` in total.
size_t LabelStride(size_t n_names, double px, double wanted) {
  const double each = px / static_cast<double>(std::max<size_t>(n_names, 1));
  return static_cast<size_t>(std::max(1.0, std::ceil(wanted / each)));
}

// Names that are not numbers are rotated rather than skipped.
bool AreNumbers(std::span<const std::string> names) {
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find_first_not_of("0123456789.,-+%ekMG ") == std::string::npos;
  });
}

struct Bottom {
  bool rotated = false;
  double height = 0;
};

Bottom LayOutBottom(const Sides& sides, double width) {
  Bottom bottom;
  bottom.height = kGap + kLine + (sides.x.label.empty() ? 0 : kLine + 2);
  if (sides.x_names.empty() || AreNumbers(sides.x_names)) return bottom;
  const double each = width / static_cast<double>(sides.x_names.size());
  bottom.rotated = Widest(sides.x_names) + kGap > each;
  if (bottom.rotated) {
    const double radians = -kLabelDegrees * std::acos(-1.0) / 180;
    bottom.height += std::sin(radians) * Widest(sides.x_names);
  }
  return bottom;
}

void DrawXNames(const Sides& sides, const Frame& frame, bool rotated, Drawing& drawing) {
  const double width = frame.right - frame.left;
  const size_t n = sides.x_names.size();
  const double wanted = rotated ? kLine : Widest(sides.x_names) + 2 * kGap;
  const size_t stride = LabelStride(n, width, wanted);
  for (size_t i = 0; i < n; i += stride) {
    const double x = frame.left + (static_cast<double>(i) + 0.5) * width / static_cast<double>(n);
    const std::string name = Shortened(sides.x_names[i], kMaxNamePx);
    drawing.Add({.x = x,
                 .y = frame.bottom + kGap + kLine - kLetterHeight - (rotated ? kLetterHeight : 0),
                 .text = name,
                 .anchor = rotated ? Anchor::kEnd : Anchor::kMiddle,
                 .degrees = rotated ? kLabelDegrees : 0});
  }
}

void DrawYNames(const Sides& sides, const Frame& frame, Drawing& drawing) {
  const double height = frame.bottom - frame.top;
  const size_t n = sides.y_names.size();
  const size_t stride = LabelStride(n, height, kLine - 2);
  for (size_t i = 0; i < n; i += stride) {
    const double y = frame.top + (static_cast<double>(i) + 0.5) * height / static_cast<double>(n);
    const std::string name = Shortened(sides.y_names[i], kMaxNamePx);
    drawing.Add(
        {.x = frame.left - kGap, .y = y + kLetterHeight, .text = name, .anchor = Anchor::kEnd});
  }
}

void DrawXTicks(std::span<const Tick> ticks, const Sides& sides, const Frame& frame,
                Drawing& drawing) {
  for (const Tick& tick : ticks) {
    const double x = frame.x.At(tick.value);
    if (sides.grid) drawing.AddLine(x, frame.top, x, frame.bottom, "grid");
    drawing.AddLine(x, frame.bottom, x, frame.bottom + 4, "axis");
    // Keep the last label within the right edge.
    const double half = TextWidth(tick.label) / 2;
    const bool at_edge = x + half > frame.right + 2 * kGap;
    drawing.Add({.x = at_edge ? frame.right + 2 * kGap : x,
                 .y = frame.bottom + kGap + kLine - kLetterHeight,
                 .text = tick.label,
                 .anchor = at_edge ? Anchor::kEnd : Anchor::kMiddle});
  }
}

void DrawYTicks(std::span<const Tick> ticks, const Sides& sides, const Frame& frame,
                Drawing& drawing) {
  for (const Tick& tick : ticks) {
    const double y = frame.y.At(tick.value);
    if (sides.grid) drawing.AddLine(frame.left, y, frame.right, y, "grid");
    drawing.Add({.x = frame.left - kGap,
                 .y = y + kLetterHeight,
                 .text = tick.label,
                 .anchor = Anchor::kEnd});
  }
}

}  // namespace

Frame DrawSides(const Sides& sides, const Canvas& canvas, Drawing& drawing) {
  drawing.width = canvas.width;
  drawing.height = canvas.height;
  Frame frame;
  frame.top = kGap + 2;
  frame.right = canvas.width - 2 * kGap;
  // The height of the plot decides the y ticks, and their width the rest of the layout.
  const double rough_height = canvas.height - frame.top - 3 * kLine;
  const std::vector<Tick> y_ticks =
      sides.y_names.empty() ? MakeTicks(sides.y.scale, sides.y_range,
                                        TicksWithin(rough_height, kPxPerYTick), sides.y.whole)
                            : std::vector<Tick>();
  const double y_width = sides.y_names.empty() ? WidestLabel(y_ticks) : Widest(sides.y_names);
  frame.left = y_width + kGap + (sides.y.label.empty() ? 2 : kLine + 6);
  const Bottom bottom = LayOutBottom(sides, frame.right - frame.left);
  // The first rotated name extends to the left of the plot.
  if (bottom.rotated) {
    frame.left = std::max(frame.left, std::min(0.6 * Widest(sides.x_names), 0.3 * canvas.width));
  }
  frame.bottom = canvas.height - bottom.height;
  frame.x = {sides.x.scale, sides.x_range, frame.left, frame.right};
  frame.y = {sides.y.scale, sides.y_range, frame.bottom, frame.top};

  if (sides.x_names.empty()) {
    const int n_wanted = TicksWithin(frame.right - frame.left, kPxPerXTick);
    DrawXTicks(MakeTicks(sides.x.scale, sides.x_range, n_wanted, sides.x.whole), sides, frame,
               drawing);
  } else {
    DrawXNames(sides, frame, bottom.rotated, drawing);
  }
  if (sides.y_names.empty()) {
    DrawYTicks(y_ticks, sides, frame, drawing);
  } else {
    DrawYNames(sides, frame, drawing);
  }
  drawing.AddLine(frame.left, frame.bottom, frame.right, frame.bottom, "axis");
  drawing.AddLine(frame.left, frame.top, frame.left, frame.bottom, "axis");
  const std::string x_label = Shortened(sides.x.label, canvas.width);
  const double middle = (frame.left + frame.right) / 2;
  // Keep a label that is wider than the plot on the canvas.
  const double half = TextWidth(x_label) / 2;
  drawing.Add({.x = std::max(half, std::min(middle, canvas.width - half)),
               .y = canvas.height - kLetterHeight,
               .text = x_label,
               .anchor = Anchor::kMiddle,
               .css_class = "label"});
  const std::string y_label = Shortened(sides.y.label, frame.bottom - frame.top + 2 * kLine);
  const double y_half = TextWidth(y_label) / 2;
  drawing.Add({.x = kLine - kLetterHeight,
               .y = std::max(y_half, (frame.top + frame.bottom) / 2),
               .text = y_label,
               .anchor = Anchor::kMiddle,
               .css_class = "label",
               .degrees = -90});
  return frame;
}

std::string FrameData(const Frame& frame) {
  const auto side = [](const char* name, const AxisMap& map) {
    const char* scale = map.scale == Scale::kLinear ? "linear" : "log";
    return std::string(" data-") + name + "=\"" + Px(map.first_px) + "," + Px(map.last_px) + "," +
           Exact(map.range.from) + "," + Exact(map.range.to) + "," + scale + "\"";
  };
  return side("x", frame.x) + side("y", frame.y);
}

}  // namespace winnow::report
