#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace winnow::report {

enum class Scheme { kLight, kDark };  // the reader's colour scheme

// Colours of heat maps: larger values contrast more with the background. The scale runs from pale
// (0) to dark (1) in the light scheme and from dark to pale in the dark one. Lightness changes
// evenly, so that the colours can be told apart in greyscale and by colour-blind readers.
uint32_t HeatColour(double share, Scheme scheme);  // 0xRRGGBB; share is clamped to 0..1
std::string HexColour(uint32_t colour);            // "#rrggbb"
// Attributes of a rectangle with the colours of both schemes; the style sheet picks one.
std::string HeatFill(double share);
bool IsDark(uint32_t colour);  // text on it should be white

// Palette for IndexedPng: indices 0..254 are shares 0..1.
const std::array<uint32_t, 256>& HeatPalette(Scheme scheme);
uint8_t HeatIndex(double share);  // NaN: 255, transparent

}  // namespace winnow::report
