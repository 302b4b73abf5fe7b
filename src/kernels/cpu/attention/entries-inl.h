// Keys of entries as floats, with rotation and factors applied. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_ENTRIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_ENTRIES_INL_H_
#undef WINNOW_KERNELS_CPU_ENTRIES_INL_H_
#else
#define WINNOW_KERNELS_CPU_ENTRIES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/rotate-inl.h"
#include "kernels/cpu/simd/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

// Loads the vector of a stored row that starts at element i.
template <class Elements>
struct ElementsAt {
  const std::byte* row;
  HWY_INLINE VF operator()(int i) const { return Elements::Load(row + i * Elements::kBytes); }
};

template <class Block>
struct BlocksAt {
  const std::byte* row;
  HWY_INLINE VF operator()(int i) const {
    const std::byte* block = row + i / 32 * Block::kBytes;
    return hn::Mul(Block::Load(block, i % 32 / kLanes), LoadScale(block));
  }
};

// Whether keys can be rotated in whole vectors.
inline bool RotatesVectors(const AttentionShape& shape) {
  const Rotation& rotation = shape.rotation;
  return rotation.any() && shape.key_dim % kLanes == 0 && rotation.n_rotated % (2 * kLanes) == 0;
}

// Layout of the rotated pairs in a key. PairLayout: any number of dimensions rotates; WholeLayout:
// all of them rotate, and their number is known at compile time.
struct PairLayout {
  int dim = 0;
  int n_pairs = 0;
  bool interleaved = false;
};
template <int kDim, bool kInterleaved>
struct WholeLayout {
  static constexpr int dim = kDim;
  static constexpr int n_pairs = kDim / 2;
  static constexpr bool interleaved = kInterleaved;
};

// Cosines and sines of a position, for kLanes of n_pairs pairs, starting at pair i. RowAngles reads
// them from the position's row of the table.
struct CosSin {
  VF cosines, sines;
};
struct RowAngles {
  const float* row;
  RowAngles(const Rotation& rotation, int64_t position) : row(rotation.Angles(position)) {}
  HWY_INLINE CosSin At(int i, int n_pairs) const {
    return {hn::LoadU(DF(), row + i), hn::LoadU(DF(), row + n_pairs + i)};
  }
};
// SumAngles combines a coarse and a fine row by the angle addition formulas. Requires:
// Rotation::unit.
struct SumAngles {
  const float *coarse, *fine;
  SumAngles(const Rotation& rotation, int64_t position)
      : coarse(rotation.Coarse(position)), fine(rotation.Fine(position)) {}
  HWY_INLINE CosSin At(int i, int n_pairs) const {
    const DF df;
    const VF ca = hn::LoadU(df, coarse + i), sa = hn::LoadU(df, coarse + n_pairs + i);
    const VF cb = hn::LoadU(df, fine + i), sb = hn::LoadU(df, fine + n_pairs + i);
    return {hn::NegMulAdd(sa, sb, hn::Mul(ca, cb)), hn::MulAdd(sa, cb, hn::Mul(ca, sb))};
  }
};

// Pairs [i, i + kLanes) of a key, rotated: first and second elements.
struct RotatedPairs {
  VF a, b;
};
template <class At, class Layout, class Angles>
HWY_INLINE RotatedPairs RotatePair(const At& at, const Layout& layout, const Angles& angles,
                                   int i) {
  const DF df;
  const auto [c, s] = angles.At(i, layout.n_pairs);
  VF a, b;
  if (layout.interleaved) {
    const VF first = at(2 * i), second = at(2 * i + kLanes);
    a = hn::ConcatEven(df, second, first);
    b = hn::ConcatOdd(df, second, first);
  } else {
    a = at(i);
    b = at(layout.n_pairs + i);
  }
  return {hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c))};
}

// Unpacks one key, rotated. Requires: RotatesVectors.
template <class At>
HWY_INLINE void UnpackRotated(const At& at, int dim, const Rotation& rotation, int64_t position,
                              float* out) {
  const DF df;
  const RowAngles angles(rotation, position);
  const int n_pairs = rotation.n_rotated / 2;
  const PairLayout layout = {dim, n_pairs, rotation.interleaved};
  for (int i = 0; i < n_pairs; i += kLanes) {
    const RotatedPairs rotated = RotatePair(at, layout, angles, i);
    if (layout.interleaved) {
      hn::StoreInterleaved2(rotated.a, rotated.b, df, out + 2 * i);
    } else {
      hn::StoreU(rotated.a, df, out + i);
      hn::StoreU(rotated.b, df, out + n_pairs + i);
    }
  }
  for (int i = rotation.n_rotated; i < dim; i += kLanes) hn::StoreU(at(i), df, out + i);
}

template <class At>
HWY_INLINE void UnpackRotatedRows(const AttentionShape& shape, const std::byte* keys,
                                  const EntryMap& entries, int64_t first, int n, float* out) {
  for (int64_t i = first; i < first + n; ++i, out += shape.key_dim) {
    const int64_t row = entries.rows == nullptr ? i : entries.rows[i];
    UnpackRotated(At{keys + row * shape.key_row_bytes}, shape.key_dim, shape.rotation,
                  entries.positions[i], out);
  }
}

// Unpacks the keys of the entries [first, first + n) to `out` [n, key_dim], rotated to their
// positions if there is a rotation. Does not apply factors.
inline void UnpackRotatedKeys(const AttentionShape& shape, const std::byte* keys,
                              const EntryMap& entries, int64_t first, int n, float* out) {
  const Rotation& rotation = shape.rotation;
  if (RotatesVectors(shape)) {
    switch (shape.key_type) {
      case TensorType::kF32:
        return UnpackRotatedRows<ElementsAt<F32Elements>>(shape, keys, entries, first, n, out);
      case TensorType::kF16:
        return UnpackRotatedRows<ElementsAt<F16Elements>>(shape, keys, entries, first, n, out);
      case TensorType::kBF16:
        return UnpackRotatedRows<ElementsAt<Bf16Elements>>(shape, keys, entries, first, n, out);
      case TensorType::kQ8_0:
        return UnpackRotatedRows<BlocksAt<Q8Block>>(shape, keys, entries, first, n, out);
      default:
        return UnpackRotatedRows<BlocksAt<Q4Block>>(shape, keys, entries, first, n, out);
    }
  }
  UnpackEntries({shape.key_type, shape.key_row_bytes, shape.key_dim}, keys, entries.rows, first, n,
                out);
  if (!rotation.any()) return;
  for (int i = 0; i < n; ++i) {
    const float* angles = rotation.Angles(entries.positions[first + i]);
    const int n_pairs = rotation.n_rotated / 2;
    RotateInPlace(rotation.interleaved, out + i * shape.key_dim, angles, angles + n_pairs, n_pairs);
  }
}

// The same, times the factors.
inline void UnpackKeys(const AttentionShape& shape, const std::byte* keys, const EntryMap& entries,
                       int64_t first, int n, float* out) {
  UnpackRotatedKeys(shape, keys, entries, first, n, out);
  if (entries.factors == nullptr) return;
  for (int i = 0; i < n; ++i) {
    const float factor = entries.factors[first + i];
    for (int j = 0; j < shape.key_dim; ++j) out[i * shape.key_dim + j] *= factor;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
