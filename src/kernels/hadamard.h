#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels {

// Dimensions that are transformed together: the largest power of two that divides the head's `dim`.
constexpr int64_t HadamardBlock(int64_t dim) { return dim & -dim; }

// Transforms one head's vector in place with plain loops; see Backend::Hadamard.
void TransformHead(std::span<float> head);

}  // namespace winnow::kernels
