// Loads weights of the unquantised types as vectors of floats. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_FLOATS_INL_H_
#undef WINNOW_KERNELS_CPU_FLOATS_INL_H_
#else
#define WINNOW_KERNELS_CPU_FLOATS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/check.h"
#include "base/half.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

struct LoadF32 {
  using Element = float;
  static HWY_INLINE VF Vector(const Element* p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE float Scalar(Element v) { return v; }
};
struct LoadF16 {
  using Element = uint16_t;
  static HWY_INLINE VF Vector(const Element* p) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> df16;
    return hn::PromoteTo(DF(), hn::BitCast(df16, hn::LoadU(d16, p)));
  }
  static HWY_INLINE float Scalar(Element v) { return HalfToFloat(v); }
};
struct LoadBF16 {
  using Element = uint16_t;
  static HWY_INLINE VF Vector(const Element* p) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Rebind<uint32_t, DF> d32;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
  }
  static HWY_INLINE float Scalar(Element v) { return Bfloat16ToFloat(v); }
};

// Calls function(loader) for an unquantised type.
template <class F>
HWY_INLINE void WithLoader(TensorType type, const F& function) {
  switch (type) {
    case TensorType::kF32:
      return function(LoadF32());
    case TensorType::kF16:
      return function(LoadF16());
    case TensorType::kBF16:
      return function(LoadBF16());
    default:
      WINNOW_CHECK(false);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
