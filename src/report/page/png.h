#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace winnow::report {

// An image of at most 255 colours as a PNG file (ISO/IEC 15948); index 255 is transparent. For
// large heat maps: a cell takes one byte here, but some hundred bytes as an SVG element.
//   pixels   [height * width], row by row from the top
//   colours  0xRRGGBB by index
std::string IndexedPng(int64_t width, int64_t height, std::span<const uint8_t> pixels,
                       const std::array<uint32_t, 256>& colours);

std::string Base64(std::string_view bytes);

}  // namespace winnow::report
