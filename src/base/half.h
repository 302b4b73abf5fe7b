#pragma once

#include <bit>
#include <cstdint>

namespace winnow {

// IEEE half and bfloat16 as bit patterns. Conversions round to nearest even and keep infinities and
// NaN.

inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(h & 0x7FFFu) << 13;
  // After the shift the float has 2^-112 times the value, as the exponent biases differ by 112. The
  // multiplication also normalizes subnormals.
  float magnitude = std::bit_cast<float>(rest) * 0x1.0p112f;
  if ((h & 0x7C00u) == 0x7C00u) {
    magnitude = std::bit_cast<float>(rest | 0x7F800000u);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds to >= 2^16
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 aligns the 10 mantissa bits with the low bits of a float, and the
    // addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude + 0xC8000FFFu + odd) >> 13));
}

inline float Bfloat16ToFloat(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

inline uint16_t FloatToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// A half in memory: converts to float on reads and rounds on writes.
struct Half {
  uint16_t bits = 0;

  Half() = default;
  Half(float value) : bits(FloatToHalf(value)) {}
  operator float() const { return HalfToFloat(bits); }
};

}  // namespace winnow
