#pragma once

#include "kernels/ops.h"

namespace winnow::kernels::reference {

// Attention straight from its definition, in double: per query head and query, all scores, softmax,
// weighted sum. `bytes` returns a storage's host memory. Cost: O(query_heads * n_queries *
// n_entries * head_dim) time, and memory for all weights of one KV head's group.
void Attend(const Attention& attention, std::byte* (*bytes)(Storage*));

}  // namespace winnow::kernels::reference
