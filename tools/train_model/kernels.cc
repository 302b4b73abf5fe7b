// CPU training kernels for the Llama architecture, with gradients; called from cpu_ops.py through
// ctypes.
//
// Matrix products take float32 operands and accumulate in float32. If the compiler targets AVX-512
// with BF16 (through -march=native), operands are rounded to bfloat16 when packed, and multiplied
// by AMX tiles if available; otherwise the products are OpenBLAS sgemm. Everything else is float32.
//
//   g++ -O3 -march=native -ffast-math -fopenmp -shared -fPIC kernels.cc -o kernels.so
//   [-l:libopenblas.so.0 without AVX-512 BF16]
//
// All sizes that enter a matrix product are multiples of 32 (cpu_ops.py pads and checks).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

// A float32 matrix with two strides (in elements), one of which is 1.
struct Strided {
  const float* data;
  int64_t row;
  int64_t col;
  Strided At(int64_t r, int64_t c) const { return {data + r * row + c * col, row, col}; }
};

// Applies RoPE to interleaved pairs. table [rows, d] holds cos, sin; sign -1 rotates back.
void Rotate(const float* src, int64_t src_stride, float* dst, int64_t dst_stride, int rows, int d,
            const float* table, float sign) {
  for (int t = 0; t < rows; ++t) {
    const float *p = src + t * src_stride, *c = table + (int64_t)t * d;
    float* q = dst + t * dst_stride;
    for (int i = 0; i < d; i += 2) {
      const float u = p[i], v = p[i + 1], co = c[i], si = sign * c[i + 1];
      q[i] = u * co - v * si;
      q[i + 1] = u * si + v * co;
    }
  }
}

struct Shape {
  int batch, length, heads, kv_heads, d;
};

}  // namespace

#ifdef __AVX512BF16__
#include "kernels_bf16.h"
#else
#include "kernels_blas.h"
#endif

extern "C" {

// Call once, before all else. Returns 0 if products run on sgemm, 1 on AMX tiles, 2 on AVX-512 with
// BF16, -1 if the system denies the tiles.
int kernels_init(int threads) {
  omp_set_num_threads(threads);
  return InitProducts();
}

// c [m, n] = a * b. trans_a: a is stored [k, m]; trans_b: b is stored [n, k]. accumulate: c += a *
// b.
void matmul(const float* a, const float* b, float* c, int m, int n, int k, int trans_a, int trans_b,
            int accumulate) {
  const Strided left = trans_a ? Strided{a, 1, m} : Strided{a, k, 1};
  const Strided right = trans_b ? Strided{b, 1, k} : Strided{b, n, 1};
  Product(left, right, c, m, n, k, accumulate != 0);
}

// Causal attention with rotary positions. q, o [batch, length, heads, d]; k, v [batch, length,
// kv_heads, d]; lse [batch, heads, length] is kept for the backward pass; table [length, d] holds
// cos, sin per pair.
void attention_forward(const float* q, const float* k, const float* v, float* o, float* lse,
                       const float* table, int batch, int length, int heads, int kv_heads, int d) {
  const Shape s{batch, length, heads, kv_heads, d};
#pragma omp parallel
  {
    TileScope tiles;
    AttentionScratch scratch;
#pragma omp for schedule(dynamic)
    for (int i = 0; i < batch * kv_heads; ++i) {
      ForwardKvHead(s, i / kv_heads, i % kv_heads, q, k, v, o, lse, table, scratch);
    }
  }
}

void attention_backward(const float* q, const float* k, const float* v, const float* o,
                        const float* lse, const float* table, const float* go, float* gq, float* gk,
                        float* gv, int batch, int length, int heads, int kv_heads, int d) {
  const Shape s{batch, length, heads, kv_heads, d};
#pragma omp parallel
  {
    TileScope tiles;
    AttentionScratch scratch;
#pragma omp for schedule(dynamic)
    for (int i = 0; i < batch * kv_heads; ++i) {
      BackwardKvHead(s, i / kv_heads, i % kv_heads, q, k, v, o, lse, table, go, gq, gk, gv,
                     scratch);
    }
  }
}

// x, y [n, c]; inverse [n] = 1 / root mean square, kept for the backward pass.
void rms_forward(const float* x, const float* w, float* y, float* inverse, int n, int c,
                 float eps) {
#pragma omp parallel for
  for (int i = 0; i < n; ++i) {
    const float* a = x + (int64_t)i * c;
    float *b = y + (int64_t)i * c, sum = 0;
    for (int j = 0; j < c; ++j) sum += a[j] * a[j];
    const float r = 1.0f / std::sqrt(sum / c + eps);
    inverse[i] = r;
    for (int j = 0; j < c; ++j) b[j] = a[j] * r * w[j];
  }
}

void rms_backward(const float* x, const float* w, const float* inverse, const float* gy, float* gx,
                  float* gw, int n, int c) {
  std::vector<std::vector<float>> sums(omp_get_max_threads(), std::vector<float>(c, 0.0f));
#pragma omp parallel
  {
    float* own = sums[omp_get_thread_num()].data();
#pragma omp for schedule(static)
    for (int i = 0; i < n; ++i) {
      const float *a = x + (int64_t)i * c, *g = gy + (int64_t)i * c;
      float *out = gx + (int64_t)i * c, r = inverse[i], dot = 0;
      for (int j = 0; j < c; ++j) {
        dot += g[j] * w[j] * a[j];
        own[j] += g[j] * a[j] * r;
      }
      const float f = dot * r * r * r / c;
      for (int j = 0; j < c; ++j) out[j] = g[j] * w[j] * r - a[j] * f;
    }
  }
  // In a fixed order, so that a resumed run repeats the interrupted one exactly.
  for (const auto& sum : sums) {
    for (int j = 0; j < c; ++j) gw[j] += sum[j];
  }
}

// gate_up [n, 2f]: gate, then up. y [n, f] = silu(gate) * up.
void swiglu_forward(const float* gate_up, float* y, int n, int f) {
#pragma omp parallel for
  for (int i = 0; i < n; ++i) {
    const float *g = gate_up + (int64_t)i * 2 * f, *u = g + f;
    float* out = y + (int64_t)i * f;
#pragma omp simd
    for (int j = 0; j < f; ++j) out[j] = g[j] / (1.0f + std::exp(-g[j])) * u[j];
  }
}

void swiglu_backward(const float* gate_up, const float* gy, float* g_gate_up, int n, int f) {
#pragma omp parallel for
  for (int i = 0; i < n; ++i) {
    const float *g = gate_up + (int64_t)i * 2 * f, *u = g + f, *y = gy + (int64_t)i * f;
    float *gg = g_gate_up + (int64_t)i * 2 * f, *gu = gg + f;
#pragma omp simd
    for (int j = 0; j < f; ++j) {
      const float sigmoid = 1.0f / (1.0f + std::exp(-g[j]));
      gg[j] = y[j] * u[j] * sigmoid * (1 + g[j] * (1 - sigmoid));
      gu[j] = y[j] * g[j] * sigmoid;
    }
  }
}

// Output projection and cross-entropy, 512 rows at a time, so that the logits of a whole batch
// never exist at once.
//   x [n, c], embedding [v, c], target [n], weight [n]: the loss is sum(weight * nll)
//   nll [n], correct [n]: 1 if the target has the largest logit
//   gx [n, c], g_embedding [v, c] (added to); both null: no gradients
void head_loss(const float* x, const float* embedding, const int* target, const float* weight,
               float* nll, int* correct, float* gx, float* g_embedding, int n, int c, int v) {
  constexpr int kRows = 512;
  std::vector<float> logits((size_t)std::min(n, kRows) * v);
  for (int i0 = 0; i0 < n; i0 += kRows) {
    const int rows = std::min(kRows, n - i0);
    matmul(x + (int64_t)i0 * c, embedding, logits.data(), rows, v, c, 0, 1, 0);
#pragma omp parallel for
    for (int r = 0; r < rows; ++r) {
      float *l = logits.data() + (int64_t)r * v, max = -1e30f, sum = 0;
      const float wanted = l[target[i0 + r]];
      for (int j = 0; j < v; ++j) max = std::max(max, l[j]);
#pragma omp simd reduction(+ : sum)
      for (int j = 0; j < v; ++j) {
        l[j] = std::exp(l[j] - max);
        sum += l[j];
      }
      nll[i0 + r] = std::log(sum) + max - wanted;
      correct[i0 + r] = wanted >= max;
      const float f = weight[i0 + r] / sum;
      for (int j = 0; j < v; ++j) l[j] *= f;
      l[target[i0 + r]] -= weight[i0 + r];
    }
    if (gx == nullptr) continue;
    matmul(logits.data(), embedding, gx + (int64_t)i0 * c, rows, c, v, 0, 0, 0);
    matmul(logits.data(), x + (int64_t)i0 * c, g_embedding, v, c, rows, 1, 0, 1);
  }
}

}  // extern "C"
