#pragma once

#include <cstdint>
#include <cstring>

// Blocks of the quantised types as they lie in a GGUF file (little-endian, no padding). `half`
// fields are the bits of an IEEE half. quants.cc defines the value of an element.
namespace winnow::kernels {

#pragma pack(push, 1)
struct BlockQ4_0 {
  uint16_t d;
  uint8_t q[16];
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t q[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t high[4];
  uint8_t q[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t q[16];
};
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t q[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t high[32];
  uint8_t q[64];
  uint8_t scales[12];
  uint16_t d;
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t q[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};
struct BlockQ6_K {
  uint8_t q[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};
#pragma pack(pop)

// The 16 levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIQ4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// Scales and mins of a Q4_K or Q5_K block: 8 of each, 6 bits apiece, packed into 12 bytes. Byte g
// of each result belongs to group g.
struct ScalesAndMins {
  uint64_t scales, mins;
};
inline ScalesAndMins UnpackScales4K(const uint8_t (&packed)[12]) {
  uint32_t p[3];
  std::memcpy(p, packed, sizeof(p));
  const uint32_t high_scales = (p[2] & 0x0F0F0F0Fu) | ((p[0] >> 2) & 0x30303030u);
  const uint32_t high_mins = ((p[2] >> 4) & 0x0F0F0F0Fu) | ((p[1] >> 2) & 0x30303030u);
  return {(p[0] & 0x3F3F3F3Fu) | static_cast<uint64_t>(high_scales) << 32,
          (p[1] & 0x3F3F3F3Fu) | static_cast<uint64_t>(high_mins) << 32};
}

// Scales of a Q3_K block, stored as 0..63 (the value plus 32): 16 of 6 bits, packed into 12 bytes.
struct Scales3K {
  uint64_t low, high;  // of groups 0..7 and 8..15
};
inline Scales3K UnpackScales3K(const uint8_t (&packed)[12]) {
  uint32_t p[3];
  std::memcpy(p, packed, sizeof(p));
  const auto four = [&](uint32_t nibbles, int shift) -> uint64_t {
    return (nibbles & 0x0F0F0F0Fu) | ((p[2] >> shift) & 0x03030303u) << 4;
  };
  return {four(p[0], 0) | four(p[1], 2) << 32, four(p[0] >> 4, 4) | four(p[1] >> 4, 6) << 32};
}

// Scale of group g (0..7) of an IQ4_XS block, -32..31.
inline int ScaleIQ4_XS(const BlockIQ4_XS& block, int g) {
  const int low = (block.scales_low[g / 2] >> (4 * (g % 2))) & 15;
  return (low | ((block.scales_high >> (2 * g)) & 3) << 4) - 32;
}

}  // namespace winnow::kernels
