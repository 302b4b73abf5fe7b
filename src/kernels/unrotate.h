#pragma once

#include <cstddef>
#include <span>

#include "kernels/ops.h"

namespace winnow::kernels {

// Turns a stored key of `keys` back by the angles of one row of a RoPE table, cos of all pairs and
// then sin, magnitude included, and before that from the Hadamard transform. `key` is working
// memory [dim].
void UnrotateRow(const HeadRows& keys, std::span<std::byte> row, std::span<const float> cos_sin,
                 const RopeTable& rope, std::span<float> key);

}  // namespace winnow::kernels
