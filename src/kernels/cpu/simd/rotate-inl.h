// Rotates one head's vector (RoPE). Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_ROTATE_INL_H_
#undef WINNOW_KERNELS_CPU_ROTATE_INL_H_
#else
#define WINNOW_KERNELS_CPU_ROTATE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Pairs (i, i + n_pairs).
inline void RotateHalves(float* head, const float* cosines, const float* sines, int64_t n_pairs) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float* a = head;
  float* b = head + n_pairs;
  int64_t i = 0;
  for (; i + lanes <= n_pairs; i += lanes) {
    const VF c = hn::LoadU(d, cosines + i);
    const VF s = hn::LoadU(d, sines + i);
    const VF va = hn::LoadU(d, a + i);
    const VF vb = hn::LoadU(d, b + i);
    hn::StoreU(hn::NegMulAdd(vb, s, hn::Mul(va, c)), d, a + i);
    hn::StoreU(hn::MulAdd(va, s, hn::Mul(vb, c)), d, b + i);
  }
  for (; i < n_pairs; ++i) {
    const float was_a = a[i];
    const float was_b = b[i];
    a[i] = was_a * cosines[i] - was_b * sines[i];
    b[i] = was_a * sines[i] + was_b * cosines[i];
  }
}

// Pairs (2i, 2i + 1).
inline void RotateInterleaved(float* head, const float* cosines, const float* sines,
                              int64_t n_pairs) {
  int64_t i = 0;
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n_pairs; i += lanes) {
    const VF c = hn::LoadU(d, cosines + i);
    const VF s = hn::LoadU(d, sines + i);
    VF va, vb;
    hn::LoadInterleaved2(d, head + 2 * i, va, vb);
    hn::StoreInterleaved2(hn::NegMulAdd(vb, s, hn::Mul(va, c)), hn::MulAdd(va, s, hn::Mul(vb, c)),
                          d, head + 2 * i);
  }
  for (; i < n_pairs; ++i) {
    const float was_a = head[2 * i];
    const float was_b = head[2 * i + 1];
    head[2 * i] = was_a * cosines[i] - was_b * sines[i];
    head[2 * i + 1] = was_a * sines[i] + was_b * cosines[i];
  }
}

inline void RotateInPlace(bool interleaved, float* head, const float* cosines, const float* sines,
                          int64_t n_pairs) {
  if (interleaved) {
    RotateInterleaved(head, cosines, sines, n_pairs);
  } else {
    RotateHalves(head, cosines, sines, n_pairs);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
