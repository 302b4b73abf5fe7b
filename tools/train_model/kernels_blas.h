// Matrix products and attention of kernels.cc in float32 on a BLAS, for CPUs without AVX-512 BF16.
// Included by kernels.cc only.
#pragma once

extern "C" void cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*,
                            int, float, float*, int);

namespace {

int InitProducts() { return 0; }

void Product(const Strided& a, const Strided& b, float* c, int m, int n, int k, bool accumulate) {
  constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
  const bool ta = a.col != 1, tb = b.col != 1;
  cblas_sgemm(kRowMajor, ta ? kTrans : kNoTrans, tb ? kTrans : kNoTrans, m, n, k, 1.0f, a.data,
              (int)(ta ? a.col : a.row), b.data, (int)(tb ? b.col : b.row),
              accumulate ? 1.0f : 0.0f, c, n);
}

struct AttentionScratch {
  std::vector<float> keys, queries, weights, products, query_gradient, key_gradient, value_gradient;
};

void Gemm(bool ta, bool tb, int m, int n, int k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(101, ta ? 112 : 111, tb ? 112 : 111, m, n, k, alpha, a, (int)lda, b, (int)ldb, beta,
              c, (int)ldc);
}

void ForwardKvHead(const Shape& s, int b, int kv, const float* q, const float* k, const float* v,
                   float* o, float* lse, const float* table, AttentionScratch& x) {
  const int T = s.length, D = s.d, group = s.heads / s.kv_heads;
  const float scale = 1.0f / std::sqrt((float)D);
  const int64_t q_row = (int64_t)s.heads * D, kv_row = (int64_t)s.kv_heads * D;
  x.keys.resize((size_t)T * D);
  x.queries.resize((size_t)32 * D);
  x.weights.resize((size_t)32 * T);
  const int64_t kv_offset = (int64_t)b * T * kv_row + kv * D;
  Rotate(k + kv_offset, kv_row, x.keys.data(), D, T, D, table, 1);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int q0 = 0; q0 < T; q0 += 32) {
      const int64_t offset = ((int64_t)b * T + q0) * q_row + h * D;
      const int visible = q0 + 32;
      Rotate(q + offset, q_row, x.queries.data(), D, 32, D, table + (int64_t)q0 * D, 1);
      Gemm(false, true, 32, visible, D, scale, x.queries.data(), D, x.keys.data(), D, 0,
           x.weights.data(), visible);
      for (int r = 0; r < 32; ++r) {
        float* row = x.weights.data() + (size_t)r * visible;
        const int end = q0 + r + 1;
        float max = -1e30f, sum = 0;
        for (int j = 0; j < end; ++j) max = std::max(max, row[j]);
        for (int j = 0; j < end; ++j) {
          row[j] = std::exp(row[j] - max);
          sum += row[j];
        }
        const float inverse = 1.0f / sum;
        for (int j = 0; j < end; ++j) row[j] *= inverse;
        for (int j = end; j < visible; ++j) row[j] = 0;
        lse[((int64_t)b * s.heads + h) * T + q0 + r] = max + std::log(sum);
      }
      Gemm(false, false, 32, D, visible, 1, x.weights.data(), visible, v + kv_offset, kv_row, 0,
           o + offset, q_row);
    }
  }
}

void BackwardKvHead(const Shape& s, int b, int kv, const float* q, const float* k, const float* v,
                    const float* o, const float* lse, const float* table, const float* go,
                    float* gq, float* gk, float* gv, AttentionScratch& x) {
  const int T = s.length, D = s.d, group = s.heads / s.kv_heads;
  const float scale = 1.0f / std::sqrt((float)D);
  const int64_t q_row = (int64_t)s.heads * D, kv_row = (int64_t)s.kv_heads * D;
  x.keys.resize((size_t)T * D);
  x.queries.resize((size_t)32 * D);
  x.query_gradient.resize((size_t)32 * D);
  x.weights.resize((size_t)32 * T);
  x.products.resize((size_t)32 * T);
  x.key_gradient.assign((size_t)T * D, 0.0f);
  x.value_gradient.assign((size_t)T * D, 0.0f);
  const int64_t kv_offset = (int64_t)b * T * kv_row + kv * D;
  Rotate(k + kv_offset, kv_row, x.keys.data(), D, T, D, table, 1);
  for (int h = kv * group; h < (kv + 1) * group; ++h) {
    for (int q0 = 0; q0 < T; q0 += 32) {
      const int64_t offset = ((int64_t)b * T + q0) * q_row + h * D;
      const int visible = q0 + 32;
      Rotate(q + offset, q_row, x.queries.data(), D, 32, D, table + (int64_t)q0 * D, 1);
      float *weights = x.weights.data(), *products = x.products.data();
      Gemm(false, true, 32, visible, D, scale, x.queries.data(), D, x.keys.data(), D, 0, weights,
           visible);
      Gemm(false, true, 32, visible, D, 1, go + offset, q_row, v + kv_offset, kv_row, 0, products,
           visible);
      for (int r = 0; r < 32; ++r) {
        float *w = weights + (size_t)r * visible, *g = products + (size_t)r * visible;
        const int end = q0 + r + 1;
        const float log_sum = lse[((int64_t)b * s.heads + h) * T + q0 + r];
        float delta = 0;
        for (int i = 0; i < D; ++i) delta += go[offset + r * q_row + i] * o[offset + r * q_row + i];
        for (int j = 0; j < end; ++j) {
          w[j] = std::exp(w[j] - log_sum);
          g[j] = w[j] * (g[j] - delta) * scale;
        }
        for (int j = end; j < visible; ++j) w[j] = g[j] = 0;
      }
      Gemm(true, false, visible, D, 32, 1, weights, visible, go + offset, q_row, 1,
           x.value_gradient.data(), D);
      Gemm(true, false, visible, D, 32, 1, products, visible, x.queries.data(), D, 1,
           x.key_gradient.data(), D);
      Gemm(false, false, 32, D, visible, 1, products, visible, x.keys.data(), D, 0,
           x.query_gradient.data(), D);
      Rotate(x.query_gradient.data(), D, gq + offset, q_row, 32, D, table + (int64_t)q0 * D, -1);
    }
  }
  Rotate(x.key_gradient.data(), D, gk + kv_offset, kv_row, T, D, table, -1);
  for (int t = 0; t < T; ++t)
    std::memcpy(gv + kv_offset + t * kv_row, &x.value_gradient[(size_t)t * D], D * 4);
}

struct TileScope {
  TileScope() {}
};

}  // namespace
