// Values that the compiler cannot see through. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_OPAQUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#undef WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#else
#define WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

// v, in a register. With few registers GCC 12 makes loops slower that it understands: it adds
// integers up as a tree, with all products alive at once and most of them on the stack, and loads
// again and again what is used several times.
template <class V>
HWY_INLINE V Opaque(V v) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  asm("" : "+v"(v.raw));
#endif
  return v;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
