#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/ops.h"

namespace winnow::kernels::testing {

inline constexpr TensorType kAllTypes[] = {
    TensorType::kF32,  TensorType::kF16,    TensorType::kBF16,   TensorType::kQ8_0,
    TensorType::kQ4_0, TensorType::kQ4_1,   TensorType::kQ5_0,   TensorType::kQ5_1,
    TensorType::kQ2_K, TensorType::kQ3_K,   TensorType::kQ4_K,   TensorType::kQ5_K,
    TensorType::kQ6_K, TensorType::kIQ4_NL, TensorType::kIQ4_XS,
};

// Uniform in [-1, 1).
std::vector<float> RandomFloats(int64_t n, Rng& rng);

// `n` elements of any type. Every bit of a quantised block is random, except its half-precision
// scales: they are finite and keep the elements within a few units.
std::vector<std::byte> RandomBlocks(TensorType type, int64_t n, Rng& rng);

}  // namespace winnow::kernels::testing
