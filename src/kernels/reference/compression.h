#pragma once

#include <span>

#include "kernels/ops.h"

// The compression operations of Backend as plain loops in double. `bytes` returns a storage's host
// memory.
namespace winnow::kernels::reference {

void ReadRows(const HeadRows& head, std::span<const int32_t> rows, std::span<float> out,
              std::byte* (*bytes)(Storage*));
void SumRows(const HeadRows& head, std::span<const RowSum> sums, std::byte* (*bytes)(Storage*));
// Cost: O(|from| * |to| * dim).
void MostSimilar(const Similarity& similarity, std::byte* (*bytes)(Storage*));
void CosinesToMean(const MeanCosines& comparison, std::byte* (*bytes)(Storage*));
AttentionTotals AddAttention(const AttentionSums& sums, std::span<const float> weights);
void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                    std::span<float> scores);

}  // namespace winnow::kernels::reference
