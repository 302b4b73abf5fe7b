#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace winnow::kernels::reference {
namespace {

// Attention weights of one KV head: [query_head of the group][query][slot]; zero where the query
// does not see the slot.
struct Weights {
  int64_t n_queries = 0;
  int64_t n_slots = 0;
  std::vector<double> values;

  Weights(int group, int64_t queries, int64_t slots)
      : n_queries(queries), n_slots(slots), values(static_cast<size_t>(group * queries * slots)) {}
  double* Row(int head, int64_t query) {
    return values.data() + (head * n_queries + query) * n_slots;
  }
};

void Softmax(double* row, int64_t n_visible) {
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t slot = 0; slot < n_visible; ++slot) max = std::max(max, row[slot]);
  double sum = 0;
  for (int64_t slot = 0; slot < n_visible; ++slot) {
    row[slot] = std::exp(row[slot] - max);
    sum += row[slot];
  }
  for (int64_t slot = 0; slot < n_visible; ++slot) row[slot] /= sum;
}

double Reduce(TapSpec::Reduce reduce, Weights& weights, int group, int64_t query, int64_t slot) {
  double sum = 0;
  double max = 0;
  for (int head = 0; head < group; ++head) {
    const double weight = weights.Row(head, query)[slot];
    sum += weight;
    max = std::max(max, weight);
  }
  switch (reduce) {
    case TapSpec::Reduce::kMean:
      return sum / group;
    case TapSpec::Reduce::kMax:
      return max;
    case TapSpec::Reduce::kSum:
      return sum;
  }
  return sum;
}

void FillTaps(const Attention& a, Weights& weights, int group) {
  const int64_t n_queries = weights.n_queries;
  const int64_t n_slots = weights.n_slots;
  if (a.taps.last_rows > 0) {
    const int64_t n_rows = a.found->n_last_rows;
    std::vector<float>& rows = a.found->last_rows.emplace_back(n_rows * n_slots);
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t slot = 0; slot < n_slots; ++slot) {
        rows[row * n_slots + slot] = static_cast<float>(
            Reduce(a.taps.reduce, weights, group, n_queries - n_rows + row, slot));
      }
    }
  }
  if (a.taps.column_sums) {
    std::vector<double>& sums = a.found->column_sums.emplace_back(n_slots);
    for (int64_t query = 0; query < n_queries; ++query) {
      for (int64_t slot = 0; slot < n_slots; ++slot) {
        sums[slot] += Reduce(a.taps.reduce, weights, group, query, slot);
      }
    }
  }
}

std::vector<float> Floats(const std::byte* rows, TensorType type, int64_t n) {
  std::vector<float> floats(n);
  Dequantize(type, {rows, static_cast<size_t>(gguf::RowBytes(type, n))}, floats);
  return floats;
}

}  // namespace

void Attend(const Attention& a, std::byte* (*bytes)(Storage*)) {
  const int group = a.n_q_heads / static_cast<int>(a.heads.size());
  WINNOW_CHECK(group * static_cast<int>(a.heads.size()) == a.n_q_heads);
  const int64_t n_queries = a.q.rows;
  if (a.taps.any()) {
    *a.found = {};
    if (a.taps.last_rows > 0) {
      a.found->n_last_rows = static_cast<int>(std::min<int64_t>(a.taps.last_rows, n_queries));
    }
  }
  const float* q = reinterpret_cast<const float*>(bytes(a.q.storage)) + a.q.offset;
  float* out = reinterpret_cast<float*>(bytes(a.out.storage)) + a.out.offset;

  for (size_t kv_head = 0; kv_head < a.heads.size(); ++kv_head) {
    const HeadStore& store = a.heads[kv_head];
    WINNOW_CHECK(store.n_slots >= n_queries);
    const std::vector<float> keys =
        Floats(bytes(store.keys) + store.keys_offset_bytes, a.key_type, store.n_slots * a.key_dim);
    const std::vector<float> values = Floats(bytes(store.values) + store.values_offset_bytes,
                                             a.value_type, store.n_slots * a.value_dim);
    Weights weights(group, n_queries, store.n_slots);
    for (int head = 0; head < group; ++head) {
      const int64_t q_head = static_cast<int64_t>(kv_head) * group + head;
      for (int64_t query = 0; query < n_queries; ++query) {
        const float* q_row = q + query * a.q.stride + q_head * a.key_dim;
        float* out_row = out + query * a.out.stride + q_head * a.value_dim;
        double* row = weights.Row(head, query);
        const int64_t n_visible = store.n_slots - n_queries + query + 1;
        for (int64_t slot = 0; slot < n_visible; ++slot) {
          double dot = 0;
          for (int i = 0; i < a.key_dim; ++i) {
            dot += static_cast<double>(q_row[i]) * keys[slot * a.key_dim + i];
          }
          row[slot] = dot * a.scale;
        }
        Softmax(row, n_visible);
        for (int i = 0; i < a.value_dim; ++i) {
          double sum = 0;
          for (int64_t slot = 0; slot < n_visible; ++slot) {
            sum += row[slot] * values[slot * a.value_dim + i];
          }
          out_row[i] = static_cast<float>(sum);
        }
      }
    }
    if (a.taps.any()) FillTaps(a, weights, group);
  }
}

}  // namespace winnow::kernels::reference
