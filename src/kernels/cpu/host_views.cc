#include "kernels/cpu/host_views.h"

#include "base/check.h"
#include "gguf/tensor_type.h"
#include "kernels/cpu/storage.h"

namespace winnow::kernels::cpu {

std::byte* Bytes(Storage* storage) { return static_cast<CpuStorage*>(storage)->data(); }

HostRows Rows(const Matrix& m) {
  if (m.empty()) return {};
  WINNOW_DCHECK(m.offset >= 0 && m.stride >= m.cols);
  WINNOW_DCHECK(m.rows == 0 || (m.offset + (m.rows - 1) * m.stride + m.cols) *
                                       static_cast<int64_t>(sizeof(float)) <=
                                   m.storage->size_bytes());
  return {reinterpret_cast<float*>(Bytes(m.storage)) + m.offset, m.rows, m.cols, m.stride};
}

Rotation RotationFrom(const RopeTable& rope, int dim) {
  WINNOW_CHECK(rope.n_rotated <= dim && rope.table.cols == rope.n_rotated);
  const HostRows table = Rows(rope.table);
  return {.table = table.data,
          .stride = table.stride,
          .n_rotated = rope.n_rotated,
          .interleaved = rope.interleaved,
          .unit = table.rows > 0 && rope.n_rotated > 0 && table.data[0] == 1};
}

HostHeadRows Rows(const HeadRows& head) {
  const int64_t row_bytes = gguf::RowBytes(head.type, head.dim);
  return {.data = Bytes(head.storage) + head.offset_bytes,
          .n_rows = (head.storage->size_bytes() - head.offset_bytes) / row_bytes,
          .dim = head.dim,
          .type = head.type,
          .row_bytes = row_bytes};
}

}  // namespace winnow::kernels::cpu
