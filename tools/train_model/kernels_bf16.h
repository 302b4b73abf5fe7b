// Matrix products and attention of kernels.cc in bfloat16: operands rounded to bfloat16, sums in
// float32. The products of packed blocks are Block32, on AMX tiles (kernels_amx.h) or on AVX-512
// (kernels_avx512.h). Included by kernels.cc only.
#pragma once

#include <immintrin.h>

#include <new>

namespace {

using Bf16 = uint16_t;

// Allocates aligned to cache lines: tiles that straddle lines load at half the speed.
template <typename T>
struct LineAligned {
  using value_type = T;
  LineAligned() = default;
  template <typename U>
  LineAligned(const LineAligned<U>&) {}
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  template <typename U>
  bool operator==(const LineAligned<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const LineAligned<U>&) const {
    return false;
  }
};
using Packed = std::vector<Bf16, LineAligned<Bf16>>;
using Floats = std::vector<float, LineAligned<float>>;
constexpr int kTile = 16 * 32;  // bfloat16 values in a tile: 16 rows of 64 bytes

}  // namespace

#ifdef __AMX_BF16__
#include "kernels_amx.h"
#else
#include "kernels_avx512.h"
#endif

namespace {

// 16 pairs (even[i], odd[i]) as bfloat16, the even one in the low half.
inline __m512i Zip(__m512 even, __m512 odd) {
  const __m512i lo = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
  const __m512i hi = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));
  return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}

// 32 consecutive floats as bfloat16 in order.
inline __m512i Row32(const float* x) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
}

inline void Transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// A 16 x 32 block of the left factor: tile row = row of the block, 32 values along k.
void PackLeft(const Strided& a, Bf16* out) {
  __m512i r[16];
  if (a.col == 1) {
    for (int i = 0; i < 16; ++i) r[i] = Row32(a.data + i * a.row);
  } else {
    for (int p = 0; p < 16; ++p) {
      r[p] = Zip(_mm512_loadu_ps(a.data + 2 * p * a.col),
                 _mm512_loadu_ps(a.data + (2 * p + 1) * a.col));
    }
    Transpose16(r);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 32, r[i]);
}

// A 32 x 16 block of the right factor: tile row p holds rows 2p and 2p+1 of the block, interleaved
// by column.
void PackRight(const Strided& b, Bf16* out) {
  __m512i r[16];
  if (b.col == 1) {
    for (int p = 0; p < 16; ++p) {
      r[p] = Zip(_mm512_loadu_ps(b.data + 2 * p * b.row),
                 _mm512_loadu_ps(b.data + (2 * p + 1) * b.row));
    }
  } else {
    for (int j = 0; j < 16; ++j) r[j] = Row32(b.data + j * b.col);
    Transpose16(r);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 32, r[i]);
}

// rows x k of the left factor as [rows/32][k/32][2 tiles].
void PackLeftPanel(const Strided& a, int rows, int k, Bf16* out) {
  for (int r = 0; r < rows; r += 32) {
    for (int i = 0; i < k; i += 32, out += 2 * kTile) {
      PackLeft(a.At(r, i), out);
      PackLeft(a.At(r + 16, i), out + kTile);
    }
  }
}

// k x cols of the right factor as [cols/32][k/32][2 tiles].
void PackRightPanel(const Strided& b, int k, int cols, Bf16* out) {
  for (int c = 0; c < cols; c += 32) {
    for (int i = 0; i < k; i += 32, out += 2 * kTile) {
      PackRight(b.At(i, c), out);
      PackRight(b.At(i, c + 16), out + kTile);
    }
  }
}

// c [m, n] = (or +=) a [m, k] * b [k, n], all threads together.
void Product(const Strided& a, const Strided& b, float* c, int m, int n, int k, bool accumulate) {
  constexpr int kDepth = 512;  // a packed 32-column panel then fits into the L1 cache
  static Packed right;         // shared by the threads of one call; calls do not overlap
  const int depth_max = std::min(k, kDepth);
  if (right.size() < (size_t)depth_max * n) right.resize((size_t)depth_max * n);
#pragma omp parallel
  {
    TileScope tiles;
    Packed left((size_t)64 * depth_max);
    for (int k0 = 0; k0 < k; k0 += kDepth) {
      const int depth = std::min(kDepth, k - k0);
#pragma omp for schedule(static)
      for (int n0 = 0; n0 < n; n0 += 32) {
        PackRightPanel(b.At(k0, n0), depth, 32, right.data() + (size_t)n0 * depth);
      }
#pragma omp for schedule(dynamic)
      for (int m0 = 0; m0 < m; m0 += 64) {
        const int rows = std::min(64, m - m0);
        PackLeftPanel(a.At(m0, k0), rows, depth, left.data());
        for (int n0 = 0; n0 < n; n0 += 32) {
          for (int r = 0; r < rows; r += 32) {
            Block32(left.data() + (size_t)r * depth, right.data() + (size_t)n0 * depth, depth / 32,
                    c + (int64_t)(m0 + r) * n + n0, n, accumulate || k0 > 0);
          }
        }
      }
    }
  }
}

// e^x for x <= 0 (attention weights). The relative error is below 1e-4, well below the bfloat16
// rounding that follows.
inline __m512 ExpNonPositive(__m512 x) {
  const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.44269504f));
  const __m512 whole = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(t, whole);
  __m512 p = _mm512_set1_ps(0.00961813f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05550411f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022651f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69314718f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, whole);
}

struct AttentionScratch {
  Floats rotated, scores, block, query_gradient;
  Packed keys, keys_t, values, queries, queries_t, outputs, outputs_t, weights, gradients,
      gradients_zipped;
};

void ForwardKvHead(const Shape& s, int b, int kv, const float* q, const float* k, const float* v,
                   float* o, float* lse, const float* table, AttentionScratch& x) {
  const int T = s.length, D = s.d, group = s.heads / s.kv_heads;
  const float scale = 1.0f / std::sqrt((float)D);
  const int64_t q_row = (int64_t)s.heads * D, kv_row = (int64_t)s.kv_heads * D;
  x.rotated.resize((size_t)T * D);
  x.scores.resize((size_t)32 * T);
  x.block.resize(32 * D);
  x.keys.resize((size_t)T * D);
  x.values.resize((size_t)T * D);
  x.queries.resize(32 * D);
  x.weights.resize((size_t)32 * T);
  const int64_t kv_offset = (int64_t)b * T * kv_row + kv * D;
  Rotate(k + kv_offset, kv_row, x.rotated.data(), D, T, D, table, 1);
  PackRightPanel({x.rotated.data(), 1, D}, D, T, x.keys.data());
  PackRightPanel({v + kv_offset, kv_row, 1}, T, D, x.values.data());
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int q0 = 0; q0 < T; q0 += 32) {
      const int64_t offset = ((int64_t)b * T + q0) * q_row + h * D;
      const int visible = q0 + 32;
      Rotate(q + offset, q_row, x.block.data(), D, 32, D, table + (int64_t)q0 * D, 1);
      for (float& f : x.block) f *= scale;
      PackLeftPanel({x.block.data(), D, 1}, 32, D, x.queries.data());
      for (int j0 = 0; j0 < visible; j0 += 32) {
        Block32(x.queries.data(), x.keys.data() + (size_t)j0 * D, D / 32, x.scores.data() + j0, T,
                false);
      }
      float inverse[32];
      for (int r = 0; r < 32; ++r) {
        float* row = x.scores.data() + (size_t)r * T;
        for (int j = q0 + r + 1; j < visible; ++j) row[j] = -1e30f;
        __m512 top = _mm512_set1_ps(-1e30f), sum = _mm512_setzero_ps();
        for (int j = 0; j < visible; j += 16) top = _mm512_max_ps(top, _mm512_loadu_ps(row + j));
        const float max = _mm512_reduce_max_ps(top);
        const __m512 shift = _mm512_set1_ps(max);
        Bf16* out = x.weights.data() + (r / 16) * kTile + (r % 16) * 32;
        for (int j = 0; j < visible; j += 32, out += 2 * kTile) {
          const __m512 lo = ExpNonPositive(_mm512_sub_ps(_mm512_loadu_ps(row + j), shift));
          const __m512 hi = ExpNonPositive(_mm512_sub_ps(_mm512_loadu_ps(row + j + 16), shift));
          sum = _mm512_add_ps(sum, _mm512_add_ps(lo, hi));
          _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
        }
        const float total = _mm512_reduce_add_ps(sum);
        inverse[r] = 1.0f / total;
        lse[((int64_t)b * s.heads + h) * T + q0 + r] = max + std::log(total);
      }
      for (int d0 = 0; d0 < D; d0 += 32) {
        Block32(x.weights.data(), x.values.data() + (size_t)d0 * T, visible / 32,
                x.block.data() + d0, D, false);
      }
      for (int r = 0; r < 32; ++r) {
        for (int i = 0; i < D; ++i) o[offset + r * q_row + i] = x.block[r * D + i] * inverse[r];
      }
    }
  }
}

// Uses transposed scores (one row per key), so that per-query values are vectors along the row.
// Only the gradient of the queries needs the other order.
void BackwardKvHead(const Shape& s, int b, int kv, const float* q, const float* k, const float* v,
                    const float* o, const float* lse, const float* table, const float* go,
                    float* gq, float* gk, float* gv, AttentionScratch& x) {
  // Blocks of 32 queries whose weights are collected before one multiplication.
  constexpr int kChunk = 8;
  const int T = s.length, D = s.d, group = s.heads / s.kv_heads, blocks = T / 32;
  const float scale = 1.0f / std::sqrt((float)D);
  const int64_t q_row = (int64_t)s.heads * D, kv_row = (int64_t)s.kv_heads * D;
  const size_t all = (size_t)T * D;
  x.rotated.resize(all);
  for (auto* packed :
       {&x.keys, &x.keys_t, &x.values, &x.queries, &x.queries_t, &x.outputs, &x.outputs_t}) {
    packed->resize(all);
  }
  x.weights.resize(kChunk * 2 * kTile);
  x.gradients.resize(kChunk * 2 * kTile);
  x.gradients_zipped.resize(2 * kTile);
  const int64_t kv_offset = (int64_t)b * T * kv_row + kv * D;
  Rotate(k + kv_offset, kv_row, x.rotated.data(), D, T, D, table, 1);
  PackLeftPanel({x.rotated.data(), D, 1}, T, D, x.keys.data());
  PackLeftPanel({x.rotated.data(), 1, D}, D, T, x.keys_t.data());
  PackLeftPanel({v + kv_offset, kv_row, 1}, T, D, x.values.data());
  Floats key_gradient(all, 0.0f), value_gradient(all, 0.0f), delta(T);
  alignas(64) float scores[32 * 32], products[32 * 32];
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    const int64_t offset = (int64_t)b * T * q_row + h * D;
    const float* log_sum = lse + ((int64_t)b * s.heads + h) * T;
    Rotate(q + offset, q_row, x.rotated.data(), D, T, D, table, 1);
    for (float& f : x.rotated) f *= scale;
    PackRightPanel({x.rotated.data(), 1, D}, D, T, x.queries_t.data());
    PackRightPanel({x.rotated.data(), D, 1}, T, D, x.queries.data());
    PackRightPanel({go + offset, 1, q_row}, D, T, x.outputs_t.data());
    PackRightPanel({go + offset, q_row, 1}, T, D, x.outputs.data());
    for (int t = 0; t < T; ++t) {
      float sum = 0;
      for (int i = 0; i < D; ++i) sum += go[offset + t * q_row + i] * o[offset + t * q_row + i];
      delta[t] = sum;
    }
    x.query_gradient.assign(all, 0.0f);  // [D, T]
    for (int jb = 0; jb < blocks; ++jb) {
      for (int first = jb; first < blocks; first += kChunk) {
        const int n = std::min(kChunk, blocks - first);
        for (int c = 0; c < n; ++c) {
          const int qb = first + c;
          Block32(x.keys.data() + (size_t)jb * 32 * D, x.queries_t.data() + (size_t)qb * 32 * D,
                  D / 32, scores, 32, false);
          Block32(x.values.data() + (size_t)jb * 32 * D, x.outputs_t.data() + (size_t)qb * 32 * D,
                  D / 32, products, 32, false);
          const __m512 sum_lo = _mm512_loadu_ps(log_sum + qb * 32),
                       sum_hi = _mm512_loadu_ps(log_sum + qb * 32 + 16);
          const __m512 delta_lo = _mm512_loadu_ps(&delta[qb * 32]),
                       delta_hi = _mm512_loadu_ps(&delta[qb * 32 + 16]);
          __m512 even_lo = _mm512_setzero_ps(), even_hi = even_lo;
          for (int r = 0; r < 32; ++r) {
            const uint32_t seen = qb == jb ? ~0u << r : ~0u;  // query >= key
            const __m512 w_lo = _mm512_maskz_mov_ps(
                (__mmask16)seen,
                ExpNonPositive(_mm512_sub_ps(_mm512_load_ps(scores + r * 32), sum_lo)));
            const __m512 w_hi = _mm512_maskz_mov_ps(
                (__mmask16)(seen >> 16),
                ExpNonPositive(_mm512_sub_ps(_mm512_load_ps(scores + r * 32 + 16), sum_hi)));
            const __m512 g_lo =
                _mm512_mul_ps(w_lo, _mm512_sub_ps(_mm512_load_ps(products + r * 32), delta_lo));
            const __m512 g_hi = _mm512_mul_ps(
                w_hi, _mm512_sub_ps(_mm512_load_ps(products + r * 32 + 16), delta_hi));
            const size_t at = (size_t)c * 2 * kTile + (r / 16) * kTile + (r % 16) * 32;
            _mm512_storeu_si512(&x.weights[at], (__m512i)_mm512_cvtne2ps_pbh(w_hi, w_lo));
            _mm512_storeu_si512(&x.gradients[at], (__m512i)_mm512_cvtne2ps_pbh(g_hi, g_lo));
            if (r % 2 == 0) {
              even_lo = g_lo;
              even_hi = g_hi;
            } else {
              _mm512_storeu_si512(&x.gradients_zipped[(r / 2) * 32], Zip(even_lo, g_lo));
              _mm512_storeu_si512(&x.gradients_zipped[kTile + (r / 2) * 32], Zip(even_hi, g_hi));
            }
          }
          for (int d0 = 0; d0 < D; d0 += 32) {
            Block32(x.keys_t.data() + (size_t)d0 * T + (size_t)jb * 2 * kTile,
                    x.gradients_zipped.data(), 1,
                    x.query_gradient.data() + (size_t)d0 * T + qb * 32, T, true);
          }
        }
        for (int d0 = 0; d0 < D; d0 += 32) {
          const size_t panel = (size_t)d0 * T + (size_t)first * 2 * kTile;
          const size_t at = (size_t)jb * 32 * D + d0;
          Block32(x.weights.data(), x.outputs.data() + panel, n, value_gradient.data() + at, D,
                  true);
          Block32(x.gradients.data(), x.queries.data() + panel, n, key_gradient.data() + at, D,
                  true);
        }
      }
    }
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < D; ++i)
        x.rotated[(size_t)t * D + i] = x.query_gradient[(size_t)i * T + t] * scale;
    }
    Rotate(x.rotated.data(), D, gq + offset, q_row, T, D, table, -1);
  }
  Rotate(key_gradient.data(), D, gk + kv_offset, kv_row, T, D, table, -1);
  for (int t = 0; t < T; ++t)
    std::memcpy(gv + kv_offset + t * kv_row, &value_gradient[(size_t)t * D], D * 4);
}

}  // namespace
