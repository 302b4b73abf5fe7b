// Hides values from the optimizer. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_OPAQUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#undef WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#else
#define WINNOW_KERNELS_CPU_OPAQUE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

// Returns v, forced into a register. When registers are scarce, GCC 12 makes loops slower that it
// can analyse: it sums integers as a tree, with all products live at once and most spilled to the
// stack, and reloads operands that are used several times.
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
