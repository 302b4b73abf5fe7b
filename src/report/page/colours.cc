#include "report/page/colours.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace winnow::report {
namespace {

constexpr int kLastStop = 7;
using Stops = std::array<uint32_t, kLastStop + 1>;
constexpr Stops kLightStops = {0xF3F5EA, 0xD3E8CE, 0x9DD3C1, 0x5FB6BE,
                               0x3391B4, 0x296AA1, 0x274580, 0x1B2050};
constexpr Stops kDarkStops = {0x20262C, 0x21354F, 0x24507B, 0x29719F,
                              0x3A94B6, 0x68B7BE, 0xA8D8C3, 0xF0F6DE};

double Channel(uint32_t colour, int shift) { return colour >> shift & 0xFF; }

}  // namespace

uint32_t HeatColour(double share, Scheme scheme) {
  const Stops& stops = scheme == Scheme::kLight ? kLightStops : kDarkStops;
  const double place = std::clamp(share, 0.0, 1.0) * kLastStop;
  const int stop = std::min(static_cast<int>(place), kLastStop - 1);
  const double within = place - stop;
  uint32_t colour = 0;
  for (const int shift : {16, 8, 0}) {
    const double from = Channel(stops[static_cast<size_t>(stop)], shift);
    const double to = Channel(stops[static_cast<size_t>(stop) + 1], shift);
    colour |= static_cast<uint32_t>(std::lround(from + within * (to - from))) << shift;
  }
  return colour;
}

std::string HexColour(uint32_t colour) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "#";
  for (int shift = 20; shift >= 0; shift -= 4) text += kDigits[colour >> shift & 15];
  return text;
}

std::string HeatFill(double share) {
  return "class=\"cell\" fill=\"" + HexColour(HeatColour(share, Scheme::kLight)) +
         "\" style=\"--d:" + HexColour(HeatColour(share, Scheme::kDark)) + "\"";
}

bool IsDark(uint32_t colour) {
  return 0.3 * Channel(colour, 16) + 0.59 * Channel(colour, 8) + 0.11 * Channel(colour, 0) < 140;
}

const std::array<uint32_t, 256>& HeatPalette(Scheme scheme) {
  using Palette = std::array<uint32_t, 256>;
  constexpr auto palette_of = [](Scheme of) {
    Palette colours{};
    for (size_t i = 0; i < 255; ++i) colours[i] = HeatColour(static_cast<double>(i) / 254, of);
    return colours;
  };
  static const Palette light = palette_of(Scheme::kLight);
  static const Palette dark = palette_of(Scheme::kDark);
  return scheme == Scheme::kLight ? light : dark;
}

uint8_t HeatIndex(double share) {
  if (std::isnan(share)) return 255;
  return static_cast<uint8_t>(std::lround(254 * std::clamp(share, 0.0, 1.0)));
}

}  // namespace winnow::report
