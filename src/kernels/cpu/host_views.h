#pragma once

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/compaction.h"
#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/cpu/rows.h"
#include "kernels/memory.h"

// What handles of the CPU backend stand for, on the host. They are valid as long as the storage.
namespace winnow::kernels::cpu {

std::byte* Bytes(Storage* storage);
// Empty for an empty matrix. Requires: the matrix lies within its storage.
HostRows Rows(const Matrix& m);
HostHeadRows Rows(const HeadRows& head);
// dim: of the heads that are rotated. Requires: the table has a column for each dimension it
// rotates, and no more of these than `dim`.
Rotation RotationFrom(const RopeTable& rope, int dim);

}  // namespace winnow::kernels::cpu
