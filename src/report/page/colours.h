#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace winnow::report {

enum class Scheme { kLight, kDark };  // of the reader

// Colours of heat maps. The more, the farther from the paper: from pale (0) to dark (1) in the
// light scheme, from dark to pale in the dark one. Lightness changes evenly, so that they can be
// told apart in grey and by colour-blind readers.
uint32_t HeatColour(double share, Scheme scheme);  // 0xRRGGBB; share is clamped to 0..1
std::string HexColour(uint32_t colour);            // "#rrggbb"
// Attributes of a rectangle that has the colour of the reader's scheme.
std::string HeatFill(double share);
bool IsDark(uint32_t colour);  // text on it is to be white

// Of IndexedPng: indices 0..254 are shares 0..1.
const std::array<uint32_t, 256>& HeatPalette(Scheme scheme);
uint8_t HeatIndex(double share);  // NaN: 255, transparent

}  // namespace winnow::report
