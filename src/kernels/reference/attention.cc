#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "kernels/taps.h"

namespace winnow::kernels::reference {
namespace {

// Attention weights of one KV head: [query_head of the group][query][entry]; zero where the query
// does not see the entry.
struct Weights {
  int64_t n_queries = 0;
  int64_t n_entries = 0;
  std::vector<double> values;

  Weights(int group, int64_t queries, int64_t entries)
      : n_queries(queries),
        n_entries(entries),
        values(static_cast<size_t>(group * queries * entries)) {}
  double* Row(int head, int64_t query) {
    return values.data() + (head * n_queries + query) * n_entries;
  }
  const double* Row(int head, int64_t query) const {
    return values.data() + (head * n_queries + query) * n_entries;
  }
};

void Softmax(double* row, int64_t n_visible) {
  const double max = *std::max_element(row, row + n_visible);
  double sum = 0;
  for (int64_t entry = 0; entry < n_visible; ++entry) {
    row[entry] = std::exp(row[entry] - max);
    sum += row[entry];
  }
  for (int64_t entry = 0; entry < n_visible; ++entry) row[entry] /= sum;
}

// Keeps and renormalises the smallest set of weights whose sum reaches top_p and zeroes the others;
// ties keep the later entry. Returns how many are kept.
int64_t KeepTopP(double* row, int64_t n_entries, double top_p) {
  // NaN weights have no order. After softmax one NaN makes every weight NaN, so keep them all.
  if (std::any_of(row, row + n_entries, [](double weight) { return std::isnan(weight); })) {
    return n_entries;
  }
  std::vector<int64_t> entries(static_cast<size_t>(n_entries));
  std::iota(entries.begin(), entries.end(), int64_t{0});
  std::sort(entries.begin(), entries.end(),
            [&](int64_t a, int64_t b) { return std::pair(row[a], a) > std::pair(row[b], b); });
  double sum = 0;
  int64_t n_kept = 0;
  while (n_kept < n_entries && sum < top_p) sum += row[entries[static_cast<size_t>(n_kept++)]];
  for (int64_t i = 0; i < n_entries; ++i) {
    double& weight = row[entries[static_cast<size_t>(i)]];
    weight = i < n_kept ? weight / sum : 0;
  }
  return n_kept;
}

// Weights of the query heads [heads.first, heads.second) reduced to one.
double Reduce(TapSpec::Reduce reduce, const Weights& weights, std::pair<int, int> heads,
              int64_t query, int64_t entry) {
  double sum = 0;
  double max = 0;
  for (int head = heads.first; head < heads.second; ++head) {
    const double weight = weights.Row(head, query)[entry];
    sum += weight;
    max = std::max(max, weight);
  }
  switch (reduce) {
    case TapSpec::Reduce::kMean:
      return sum / (heads.second - heads.first);
    case TapSpec::Reduce::kMax:
      return max;
    case TapSpec::Reduce::kSum:
    case TapSpec::Reduce::kNone:
      return sum;
  }
  return sum;
}

void FillList(const Attention& a, const Weights& weights, std::pair<int, int> heads, int64_t list) {
  const int64_t n_entries = weights.n_entries;
  PrepareTapList(a.taps, list, n_entries, *a.found);
  const auto i = static_cast<size_t>(list);
  for (int64_t query = 0; query < weights.n_queries; ++query) {
    const int64_t row = query - (weights.n_queries - a.found->n_last_rows);
    for (int64_t entry = 0; entry < n_entries; ++entry) {
      const double weight = Reduce(a.taps.reduce, weights, heads, query, entry);
      if (a.taps.last_rows > 0 && row >= 0) {
        a.found->last_rows[i][row * n_entries + entry] = static_cast<float>(weight);
      }
      if (query >= weights.n_queries - a.taps.last_sums) a.found->last_sums[i][entry] += weight;
      if (a.taps.column_sums) a.found->column_sums[i][entry] += weight;
      if (a.taps.square_sums) a.found->square_sums[i][entry] += weight * weight;
      if (a.taps.column_max) {
        float& max = a.found->column_max[i][entry];
        max = std::max(max, static_cast<float>(weight));
      }
    }
  }
}

void FillTaps(const Attention& a, const Weights& weights, int64_t kv_head, int group) {
  if (a.taps.reduce != TapSpec::Reduce::kNone) return FillList(a, weights, {0, group}, kv_head);
  for (int head = 0; head < group; ++head) {
    FillList(a, weights, {head, head + 1}, kv_head * group + head);
  }
}

std::vector<float> Floats(const std::byte* rows, TensorType type, int64_t n) {
  std::vector<float> floats(n);
  Dequantize(type, {rows, static_cast<size_t>(gguf::RowBytes(type, n))}, floats);
  return floats;
}

// Rotates one head's vector in place. `angles` is the position's row of the table.
void Rotate(const RopeTable& rope, const float* angles, double* head) {
  const int n_pairs = rope.n_rotated / 2;
  for (int pair = 0; pair < n_pairs; ++pair) {
    double& a = head[rope.interleaved ? 2 * pair : pair];
    double& b = head[rope.interleaved ? 2 * pair + 1 : pair + n_pairs];
    const double was_a = a;
    const double was_b = b;
    a = was_a * angles[pair] - was_b * angles[n_pairs + pair];
    b = was_a * angles[n_pairs + pair] + was_b * angles[pair];
  }
}

class HeadAttention {
 public:
  HeadAttention(const Attention& a, size_t kv_head, std::byte* (*bytes)(Storage*))
      : a_(a), store_(a.heads[kv_head]), bytes_(bytes) {
    if (!a.entries.empty()) entries_ = a.entries[kv_head];
    n_entries_ = entries_.shares_rows() ? static_cast<int64_t>(entries_.size()) : store_.n_slots;
    WINNOW_CHECK(n_entries_ >= a.q.rows);
    WINNOW_CHECK(entries_.factors.empty() || HasAllEntries(entries_.factors.size()));
    WINNOW_CHECK(a.rope == nullptr || HasAllEntries(entries_.positions.size()));
    WINNOW_CHECK(entries_.biases.empty() ||
                 (HasAllEntries(entries_.biases.size()) && !entries_.shares_rows()));
    keys_ = Keys();
    values_ = Floats(bytes(store_.values) + store_.values_offset_bytes, a.value_type,
                     store_.n_slots * a.value_dim);
  }

  int64_t n_entries() const { return n_entries_; }

  // Attention of one query: writes its weights to `weights` and the weighted sum of values to
  // `out`.
  void Attend(const float* q, int64_t query, double* weights, float* out) const {
    std::vector<double> rotated(q, q + a_.key_dim);
    if (a_.rope != nullptr)
      Rotate(*a_.rope, Angles(entries_.query_position + query), rotated.data());
    const int64_t n_visible = n_entries_ - a_.q.rows + query + 1;
    for (int64_t entry = 0; entry < n_visible; ++entry) {
      const double* key = keys_.data() + entry * a_.key_dim;
      weights[entry] = std::inner_product(key, key + a_.key_dim, rotated.data(), 0.0) * a_.scale;
      if (!entries_.biases.empty()) weights[entry] += double{entries_.biases[entry]};
    }
    Softmax(weights, n_visible);
    if (a_.top_p < 1) *a_.n_attended += KeepTopP(weights, n_visible, a_.top_p);
    for (int i = 0; i < a_.value_dim; ++i) {
      double sum = 0;
      for (int64_t entry = 0; entry < n_visible; ++entry) {
        sum += weights[entry] * values_[Row(entry) * a_.value_dim + i];
      }
      out[i] = static_cast<float>(sum);
    }
  }

 private:
  bool HasAllEntries(size_t n) const { return static_cast<int64_t>(n) == n_entries_; }

  int64_t Row(int64_t entry) const {
    const auto at = static_cast<size_t>(entry);
    const int64_t row = !entries_.rows.empty()         ? entries_.rows[at]
                        : !entries_.short_rows.empty() ? entries_.short_rows[at]
                                                       : entry;
    WINNOW_CHECK(row >= 0 && row < store_.n_slots);
    return row;
  }

  const float* Angles(int64_t position) const {
    const Matrix& table = a_.rope->table;
    WINNOW_CHECK(position >= 0 && position < table.rows);
    return reinterpret_cast<const float*>(bytes_(table.storage)) + table.offset +
           position * table.stride;
  }

  // [entry, key_dim]: the key in the entry's row times its factor, rotated to its position.
  std::vector<double> Keys() const {
    const std::vector<float> stored = Floats(bytes_(store_.keys) + store_.keys_offset_bytes,
                                             a_.key_type, store_.n_slots * a_.key_dim);
    std::vector<double> keys(static_cast<size_t>(n_entries_ * a_.key_dim));
    for (int64_t entry = 0; entry < n_entries_; ++entry) {
      const auto at = static_cast<size_t>(entry);
      const float* row = stored.data() + Row(entry) * a_.key_dim;
      double* key = keys.data() + entry * a_.key_dim;
      const double factor = entries_.factors.empty() ? 1.0 : double{entries_.factors[at]};
      for (int i = 0; i < a_.key_dim; ++i) key[i] = row[i] * factor;
      if (a_.rope != nullptr) Rotate(*a_.rope, Angles(entries_.positions[at]), key);
    }
    return keys;
  }

  const Attention& a_;
  const HeadStore& store_;
  std::byte* (*bytes_)(Storage*);
  HeadEntries entries_;
  int64_t n_entries_ = 0;
  std::vector<double> keys_;
  std::vector<float> values_;  // [row, value_dim]
};

}  // namespace

void Attend(const Attention& a, std::byte* (*bytes)(Storage*)) {
  const auto n_heads = static_cast<int64_t>(a.heads.size());
  const int group = a.n_q_heads / static_cast<int>(n_heads);
  WINNOW_CHECK(group * n_heads == a.n_q_heads);
  WINNOW_CHECK(a.entries.empty() || a.entries.size() == a.heads.size());
  WINNOW_CHECK(a.rope == nullptr || !a.entries.empty());
  const int64_t n_queries = a.q.rows;
  if (a.top_p < 1) {
    WINNOW_CHECK(n_queries == 1 && !a.taps.any() && a.n_attended != nullptr);
    *a.n_attended = 0;
  }
  if (a.taps.any()) {
    PrepareTaps(a.taps, n_queries, TapLists(a.taps.reduce, n_heads, group), *a.found);
  }
  const float* q = reinterpret_cast<const float*>(bytes(a.q.storage)) + a.q.offset;
  float* out = reinterpret_cast<float*>(bytes(a.out.storage)) + a.out.offset;

  for (int64_t kv_head = 0; kv_head < n_heads; ++kv_head) {
    const HeadAttention attention(a, static_cast<size_t>(kv_head), bytes);
    Weights weights(group, n_queries, attention.n_entries());
    for (int head = 0; head < group; ++head) {
      const int64_t q_head = kv_head * group + head;
      for (int64_t query = 0; query < n_queries; ++query) {
        attention.Attend(q + query * a.q.stride + q_head * a.key_dim, query,
                         weights.Row(head, query),
                         out + query * a.out.stride + q_head * a.value_dim);
      }
    }
    if (a.taps.any()) FillTaps(a, weights, kv_head, group);
  }
}

}  // namespace winnow::kernels::reference
