#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels {

// Dimensions of a head that are transformed together: the largest power of two that divides them.
constexpr int64_t HadamardBlock(int64_t dim) { return dim & -dim; }

// Transforms one head's vector in place, in plain loops (Backend::Hadamard).
void TransformHead(std::span<float> head);

}  // namespace winnow::kernels
