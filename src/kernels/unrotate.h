#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops.h"

namespace winnow::kernels {

// Reverses the Hadamard transform (if keys.hadamard) and then RoPE on one stored key of `keys`, in
// place. `row` is the stored key; `cos_sin` is the row of the RoPE table that rotated it: cos of
// all pairs, then sin, magnitude included. `key` is working memory [dim].
void UnrotateRow(const HeadRows& keys, std::span<std::byte> row, std::span<const float> cos_sin,
                 const RopeTable& rope, std::span<float> key);

}  // namespace winnow::kernels
