#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/ops.h"

namespace winnow::kernels {
namespace {

// --- one block to floats; y has the block's number of elements ---

void Block(const BlockQ4_0& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>((b.q[j] & 15) - 8);
    y[j + 16] = d * static_cast<float>((b.q[j] >> 4) - 8);
  }
}

void Block(const BlockQ4_1& b, float* y) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(b.q[j] & 15) + m;
    y[j + 16] = d * static_cast<float>(b.q[j] >> 4) + m;
  }
}

// Element e of the 5-bit types: its nibble plus bit e of `high` as bit 4.
int FiveBits(const uint8_t (&q)[16], const uint8_t (&high)[4], int e) {
  const int nibble = e < 16 ? q[e] & 15 : q[e - 16] >> 4;
  return nibble | ((high[e / 8] >> (e % 8)) & 1) << 4;
}

void Block(const BlockQ5_0& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(FiveBits(b.q, b.high, e) - 16);
}

void Block(const BlockQ5_1& b, float* y) {
  const float d = HalfToFloat(b.d), m = HalfToFloat(b.m);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(FiveBits(b.q, b.high, e)) + m;
}

void Block(const BlockQ8_0& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int e = 0; e < 32; ++e) y[e] = d * static_cast<float>(b.q[e]);
}

void Block(const BlockIQ4_NL& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIQ4Levels[b.q[j] & 15]);
    y[j + 16] = d * static_cast<float>(kIQ4Levels[b.q[j] >> 4]);
  }
}

// In Q2_K and Q3_K, group i (0..15) of 16 elements starts at element 16 i; its 2-bit parts lie at
// bits 2 * (i / 2 % 4) of 16 bytes.
const uint8_t* TwoBits(const uint8_t (&q)[64], int group) {
  return q + 32 * (group / 8) + 16 * (group % 2);
}
int TwoBitShift(int group) { return 2 * (group / 2 % 4); }

int ByteAt(uint64_t bytes, int i) { return static_cast<int>((bytes >> (8 * i)) & 0xFF); }

void Block(const BlockQ2_K& b, float* y) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  for (int i = 0; i < 16; ++i) {
    const float scale = d * static_cast<float>(b.scales[i] & 15);
    const float min = dmin * static_cast<float>(b.scales[i] >> 4);
    const uint8_t* q = TwoBits(b.q, i);
    for (int l = 0; l < 16; ++l) {
      y[16 * i + l] = scale * static_cast<float>((q[l] >> TwoBitShift(i)) & 3) - min;
    }
  }
}

void Block(const BlockQ3_K& b, float* y) {
  const float d = HalfToFloat(b.d);
  const Scales3K scales = UnpackScales3K(b.scales);
  for (int i = 0; i < 16; ++i) {
    const int six_bits = ByteAt(i < 8 ? scales.low : scales.high, i % 8);
    const float scale = d * static_cast<float>(six_bits - 32);
    const uint8_t* q = TwoBits(b.q, i);
    for (int l = 0; l < 16; ++l) {
      const int low = (q[l] >> TwoBitShift(i)) & 3;
      const int high = (b.high[16 * (i % 2) + l] >> (i / 2)) & 1;
      y[16 * i + l] = scale * static_cast<float>(low + 4 * high - 4);
    }
  }
}

void Block(const BlockQ4_K& b, float* y) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  const auto [scales, mins] = UnpackScales4K(b.scales);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(ByteAt(scales, g));
    const float min = dmin * static_cast<float>(ByteAt(mins, g));
    for (int l = 0; l < 32; ++l) {
      const int q = (b.q[32 * (g / 2) + l] >> (4 * (g % 2))) & 15;
      y[32 * g + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void Block(const BlockQ5_K& b, float* y) {
  const float d = HalfToFloat(b.d), dmin = HalfToFloat(b.dmin);
  const auto [scales, mins] = UnpackScales4K(b.scales);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(ByteAt(scales, g));
    const float min = dmin * static_cast<float>(ByteAt(mins, g));
    for (int l = 0; l < 32; ++l) {
      const int nibble = (b.q[32 * (g / 2) + l] >> (4 * (g % 2))) & 15;
      const int q = nibble | ((b.high[l] >> g) & 1) << 4;
      y[32 * g + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void Block(const BlockQ6_K& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int g = 0; g < 8; ++g) {  // group g of 32: half g / 4, quarter k = g % 4
    const int k = g % 4;
    const uint8_t* q = b.q + 64 * (g / 4) + 32 * (k % 2);
    const uint8_t* high = b.high + 32 * (g / 4);
    for (int l = 0; l < 32; ++l) {
      const int low = (q[l] >> (4 * (k / 2))) & 15;
      const int value = (low | ((high[l] >> (2 * k)) & 3) << 4) - 32;
      const float scale = d * static_cast<float>(b.scales[2 * g + l / 16]);
      y[32 * g + l] = scale * static_cast<float>(value);
    }
  }
}

void Block(const BlockIQ4_XS& b, float* y) {
  const float d = HalfToFloat(b.d);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(ScaleIQ4_XS(b, g));
    for (int j = 0; j < 16; ++j) {
      y[32 * g + j] = scale * static_cast<float>(kIQ4Levels[b.q[16 * g + j] & 15]);
      y[32 * g + j + 16] = scale * static_cast<float>(kIQ4Levels[b.q[16 * g + j] >> 4]);
    }
  }
}

template <typename B>
void Blocks(std::span<const std::byte> from, int block_elements, std::span<float> to) {
  const auto* blocks = reinterpret_cast<const B*>(from.data());
  for (size_t i = 0; i * block_elements < to.size(); ++i) Block(blocks[i], &to[i * block_elements]);
}

// Halves in a file need not be aligned.
uint16_t LoadHalf(std::span<const std::byte> from, size_t i) {
  uint16_t half;
  std::memcpy(&half, from.data() + 2 * i, 2);
  return half;
}

// --- floats to one block ---

// The scale makes the largest magnitude exactly representable; values round to nearest, ties away
// from zero. Values that are not finite become level 0, in every type.
void Quantize(const float* x, BlockQ8_0& b) {
  float largest = 0;
  for (int e = 0; e < 32; ++e) largest = std::max(largest, std::fabs(x[e]));
  const float d = largest / 127.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  b.d = FloatToHalf(d);
  for (int e = 0; e < 32; ++e) {
    const float level = std::round(x[e] * inverse);
    b.q[e] = static_cast<int8_t>(std::isfinite(level) ? level : 0.0f);
  }
}

// The value of largest magnitude, with its sign, becomes -8: the range -8..7 has one more level on
// that side.
void Quantize(const float* x, BlockQ4_0& b) {
  float largest = 0;
  for (int e = 0; e < 32; ++e) {
    if (std::fabs(x[e]) > std::fabs(largest)) largest = x[e];
  }
  const float d = largest / -8.0f;
  const float inverse = d != 0 ? 1.0f / d : 0.0f;
  b.d = FloatToHalf(d);
  const auto level = [&](float v) {
    const float up = v * inverse + 8.5f;
    return static_cast<uint8_t>(std::isfinite(up) ? std::min(15, static_cast<int>(up)) : 0);
  };
  for (int j = 0; j < 16; ++j) b.q[j] = static_cast<uint8_t>(level(x[j]) | level(x[j + 16]) << 4);
}

template <typename B>
void QuantizeBlocks(std::span<const float> from, std::span<std::byte> to) {
  auto* blocks = reinterpret_cast<B*>(to.data());
  for (size_t i = 0; i * 32 < from.size(); ++i) Quantize(&from[i * 32], blocks[i]);
}

}  // namespace

void Dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto n = static_cast<int64_t>(out.size());
  WINNOW_CHECK(static_cast<int64_t>(blocks.size()) == gguf::RowBytes(type, n));
  const int block_elements = gguf::GetTypeInfo(type).block_elements;
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out.data(), blocks.data(), blocks.size());
      return;
    case TensorType::kF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = HalfToFloat(LoadHalf(blocks, i));
      return;
    case TensorType::kBF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = Bfloat16ToFloat(LoadHalf(blocks, i));
      return;
    case TensorType::kQ4_0:
      return Blocks<BlockQ4_0>(blocks, block_elements, out);
    case TensorType::kQ4_1:
      return Blocks<BlockQ4_1>(blocks, block_elements, out);
    case TensorType::kQ5_0:
      return Blocks<BlockQ5_0>(blocks, block_elements, out);
    case TensorType::kQ5_1:
      return Blocks<BlockQ5_1>(blocks, block_elements, out);
    case TensorType::kQ8_0:
      return Blocks<BlockQ8_0>(blocks, block_elements, out);
    case TensorType::kQ2_K:
      return Blocks<BlockQ2_K>(blocks, block_elements, out);
    case TensorType::kQ3_K:
      return Blocks<BlockQ3_K>(blocks, block_elements, out);
    case TensorType::kQ4_K:
      return Blocks<BlockQ4_K>(blocks, block_elements, out);
    case TensorType::kQ5_K:
      return Blocks<BlockQ5_K>(blocks, block_elements, out);
    case TensorType::kQ6_K:
      return Blocks<BlockQ6_K>(blocks, block_elements, out);
    case TensorType::kIQ4_NL:
      return Blocks<BlockIQ4_NL>(blocks, block_elements, out);
    case TensorType::kIQ4_XS:
      return Blocks<BlockIQ4_XS>(blocks, block_elements, out);
  }
  WINNOW_CHECK(false);
}

bool IsCacheType(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kQ8_0:
    case TensorType::kQ4_0:
      return true;
    default:
      return false;
  }
}

void Quantize(TensorType type, std::span<const float> values, std::span<std::byte> blocks) {
  const auto n = static_cast<int64_t>(values.size());
  WINNOW_CHECK(static_cast<int64_t>(blocks.size()) == gguf::RowBytes(type, n));
  const auto store_halves = [&](auto convert) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = convert(values[i]);
      std::memcpy(blocks.data() + 2 * i, &half, 2);
    }
  };
  switch (type) {
    case TensorType::kF32:
      std::memcpy(blocks.data(), values.data(), blocks.size());
      return;
    case TensorType::kF16:
      return store_halves(FloatToHalf);
    case TensorType::kBF16:
      return store_halves(FloatToBfloat16);
    case TensorType::kQ8_0:
      return QuantizeBlocks<BlockQ8_0>(values, blocks);
    case TensorType::kQ4_0:
      return QuantizeBlocks<BlockQ4_0>(values, blocks);
    default:
      WINNOW_CHECK(IsCacheType(type));
  }
}

}  // namespace winnow::kernels
