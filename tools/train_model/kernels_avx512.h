// Products of packed bfloat16 blocks on AVX-512 with BF16 (Zen 4, Cooper Lake). Included by
// kernels_bf16.h only.
#pragma once

namespace {

int InitProducts() { return 2; }

struct TileScope {
  TileScope() {}
};

// Rows [row, row + kRows) of Block32, with the sums in registers.
template <int kRows>
inline void BlockRows(const Bf16* left, const Bf16* right, int k_blocks, float* c, int64_t ldc,
                      int row, bool accumulate) {
  __m512 sum[kRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const float* at = c + (row + r) * ldc;
    sum[r][0] = accumulate ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
    sum[r][1] = accumulate ? _mm512_loadu_ps(at + 16) : _mm512_setzero_ps();
  }
  for (int k = 0; k < k_blocks; ++k, left += 2 * kTile, right += 2 * kTile) {
    for (int pair = 0; pair < 16; ++pair) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(right + pair * 32);
      const __m512bh b1 = (__m512bh)_mm512_loadu_si512(right + kTile + pair * 32);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        int values;  // the two tiles of 16 rows are contiguous
        std::memcpy(&values, left + (row + r) * 32 + pair * 2, 4);
        const __m512bh a = (__m512bh)_mm512_set1_epi32(values);
        sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, b0);
        sum[r][1] = _mm512_dpbf16_ps(sum[r][1], a, b1);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    float* at = c + (row + r) * ldc;
    _mm512_storeu_ps(at, sum[r][0]);
    _mm512_storeu_ps(at + 16, sum[r][1]);
  }
}

// c [32, 32] = (or +=) the product of k_blocks packed tile pairs. left: [k_block][2 tiles], right:
// [k_block][2 tiles].
inline void Block32(const Bf16* left, const Bf16* right, int k_blocks, float* c, int64_t ldc,
                    bool accumulate) {
  BlockRows<12>(left, right, k_blocks, c, ldc, 0, accumulate);
  BlockRows<12>(left, right, k_blocks, c, ldc, 12, accumulate);
  BlockRows<8>(left, right, k_blocks, c, ldc, 24, accumulate);
}

}  // namespace
