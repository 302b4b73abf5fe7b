// Converts stored rows to floats. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_UNPACK_INL_H_
#undef WINNOW_KERNELS_CPU_UNPACK_INL_H_
#else
#define WINNOW_KERNELS_CPU_UNPACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/cache_rows-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class Elements>
void UnpackElements(const std::byte* from, int64_t row_bytes, int n_rows, int dim, float* out) {
  for (int row = 0; row < n_rows; ++row, from += row_bytes, out += dim) {
    int i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      hn::StoreU(Elements::Load(from + i * Elements::kBytes), DF(), out + i);
    }
    if (i == dim) continue;
    alignas(64) float rest[kLanes];
    hn::Store(LoadFirst<Elements>(from + i * Elements::kBytes, dim - i), DF(), rest);
    std::copy(rest, rest + (dim - i), out + i);
  }
}

// Contiguous blocks: rows of blocks have no gaps.
template <class Block>
void UnpackBlocks(const std::byte* from, int n_blocks, float* out) {
  for (int block = 0; block < n_blocks; ++block, from += Block::kBytes, out += 32) {
    const VF scale = LoadScale(from);
#pragma GCC unroll 8
    for (int part = 0; part < 32 / kLanes; ++part) {
      hn::StoreU(hn::Mul(Block::Load(from, part), scale), DF(), out + part * kLanes);
    }
  }
}

// Converts contiguous rows to floats [n_rows, dim].
inline void UnpackRows(TensorType type, const std::byte* from, int64_t row_bytes, int n_rows,
                       int dim, float* out) {
  switch (type) {
    case TensorType::kF32:
      return UnpackElements<F32Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kF16:
      return UnpackElements<F16Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kBF16:
      return UnpackElements<Bf16Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kQ8_0:
      return UnpackBlocks<Q8Block>(from, n_rows * dim / 32, out);
    default:
      return UnpackBlocks<Q4Block>(from, n_rows * dim / 32, out);
  }
}

// Layout of rows in a storage.
struct RowLayout {
  TensorType type;
  int64_t row_bytes;
  int dim;
};

// Converts the rows of the entries [first, first + n) to floats [n, dim]. `rows` [entry]; null:
// entry i is row i.
inline void UnpackEntries(const RowLayout& layout, const std::byte* from, const int32_t* rows,
                          int64_t first, int n, float* out) {
  if (rows == nullptr) {
    return UnpackRows(layout.type, from + first * layout.row_bytes, layout.row_bytes, n, layout.dim,
                      out);
  }
  for (int i = 0; i < n; ++i) {
    UnpackRows(layout.type, from + rows[first + i] * layout.row_bytes, layout.row_bytes, 1,
               layout.dim, out + i * layout.dim);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
