// Exponentials for the per-target files. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_EXP_INL_H_
#undef WINNOW_KERNELS_CPU_EXP_INL_H_
#else
#define WINNOW_KERNELS_CPU_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 2^fraction * 2^whole. Requires |fraction| <= 0.5 and -126 <= whole <= 127.
// The polynomial is the minimax one of degree 6 (relative error 2e-9, 1e-7 after rounding); 2^0 is
// exactly 1.
template <class D, class V = hn::Vec<D>, class VI = hn::Vec<hn::RebindToSigned<D>>>
HWY_INLINE V ScaledExp2(D d, V fraction, VI whole) {
  V p = hn::Set(d, 0x1.41d334p-13f);
  p = hn::MulAdd(p, fraction, hn::Set(d, 0x1.5f456ap-10f));
  p = hn::MulAdd(p, fraction, hn::Set(d, 0x1.3b2dbcp-7f));
  p = hn::MulAdd(p, fraction, hn::Set(d, 0x1.c6aed4p-5f));
  p = hn::MulAdd(p, fraction, hn::Set(d, 0x1.ebfbdap-3f));
  p = hn::MulAdd(p, fraction, hn::Set(d, 0x1.62e430p-1f));
  p = hn::MulAdd(p, fraction, hn::Set(d, 1.0f));
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(whole)));
}

// 2^x for x <= 0; x is clamped to -125.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2OfNegative(D d, V x) {
  x = hn::Max(x, hn::Set(d, -125.0f));
  const auto whole = hn::NearestInt(x);
  return ScaledExp2(d, hn::Sub(x, hn::ConvertTo(d, whole)), whole);
}

// e^x, relative error below 1e-6; x is clamped to +-87.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  x = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  const auto whole = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504089f)));
  const V n = hn::ConvertTo(d, whole);
  // ln 2 as a sum of two parts: the first has so few bits that its product with n is exact.
  V rest = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  rest = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), rest);
  return ScaledExp2(d, hn::Mul(rest, hn::Set(d, 1.44269504089f)), whole);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
