#include "kernels/testing/random_blocks.h"

#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/blocks.h"

namespace winnow::kernels::testing {
namespace {

// Overwrites the half at `offset` of every block with a scale of magnitude at most `largest`.
void SetScales(std::vector<std::byte>& blocks, size_t block_bytes, size_t offset, float largest,
               Rng& rng) {
  for (size_t i = offset; i < blocks.size(); i += block_bytes) {
    const uint16_t half = FloatToHalf(static_cast<float>(rng.Uniform() * 2 - 1) * largest);
    std::memcpy(&blocks[i], &half, sizeof(half));
  }
}

template <typename Block>
std::vector<std::byte> Make(int64_t n_blocks, Rng& rng, std::initializer_list<size_t> scale_offsets,
                            float largest) {
  std::vector<std::byte> blocks(static_cast<size_t>(n_blocks) * sizeof(Block));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.Next() >> 56);
  for (const size_t offset : scale_offsets) SetScales(blocks, sizeof(Block), offset, largest, rng);
  return blocks;
}

}  // namespace

std::vector<float> RandomFloats(int64_t n, Rng& rng) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(rng.Uniform() * 2 - 1);
  return values;
}

std::vector<std::byte> RandomBlocks(TensorType type, int64_t n, Rng& rng) {
  const int64_t n_blocks = n / gguf::GetTypeInfo(type).block_elements;
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: {
      std::vector<std::byte> bytes(static_cast<size_t>(gguf::RowBytes(type, n)));
      Quantize(type, RandomFloats(n, rng), bytes);
      return bytes;
    }
    case TensorType::kQ4_0:
      return Make<BlockQ4_0>(n_blocks, rng, {offsetof(BlockQ4_0, d)}, 0.2f);
    case TensorType::kQ4_1:
      return Make<BlockQ4_1>(n_blocks, rng, {offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)}, 0.2f);
    case TensorType::kQ5_0:
      return Make<BlockQ5_0>(n_blocks, rng, {offsetof(BlockQ5_0, d)}, 0.1f);
    case TensorType::kQ5_1:
      return Make<BlockQ5_1>(n_blocks, rng, {offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)}, 0.1f);
    case TensorType::kQ8_0:
      return Make<BlockQ8_0>(n_blocks, rng, {offsetof(BlockQ8_0, d)}, 0.01f);
    case TensorType::kQ2_K:
      return Make<BlockQ2_K>(n_blocks, rng, {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)},
                             0.05f);
    case TensorType::kQ3_K:
      return Make<BlockQ3_K>(n_blocks, rng, {offsetof(BlockQ3_K, d)}, 0.02f);
    case TensorType::kQ4_K:
      return Make<BlockQ4_K>(n_blocks, rng, {offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)},
                             0.003f);
    case TensorType::kQ5_K:
      return Make<BlockQ5_K>(n_blocks, rng, {offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin)},
                             0.002f);
    case TensorType::kQ6_K:
      return Make<BlockQ6_K>(n_blocks, rng, {offsetof(BlockQ6_K, d)}, 0.0005f);
    case TensorType::kIQ4_NL:
      return Make<BlockIQ4_NL>(n_blocks, rng, {offsetof(BlockIQ4_NL, d)}, 0.01f);
    case TensorType::kIQ4_XS:
      return Make<BlockIQ4_XS>(n_blocks, rng, {offsetof(BlockIQ4_XS, d)}, 0.0005f);
  }
  WINNOW_CHECK(false);
  return {};
}

}  // namespace winnow::kernels::testing
