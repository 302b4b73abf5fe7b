#pragma once

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/compaction.h"
#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/cpu/rows.h"
#include "kernels/memory.h"

// Converts handles of the CPU backend to host pointers, which are valid as long as the storage.
namespace winnow::kernels::cpu {

std::byte* Bytes(Storage* storage);
// Empty for an empty matrix. Requires: the matrix lies within its storage.
HostRows Rows(const Matrix& m);
HostHeadRows Rows(const HeadRows& head);
// dim: dimensions of the heads to rotate. Requires: rope.table.cols == rope.n_rotated <= dim.
Rotation RotationFrom(const RopeTable& rope, int dim);

}  // namespace winnow::kernels::cpu
