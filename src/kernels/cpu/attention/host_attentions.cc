#include "kernels/cpu/attention/host_attentions.h"

#include "base/check.h"
#include "kernels/cpu/host_views.h"

namespace winnow::kernels::cpu {
namespace {

// Null for empty spans. Widen sets factors, biases and short rows.
EntryMap Map(const HeadEntries& entries, bool rotated) {
  const auto data = [](auto span) { return span.empty() ? nullptr : span.data(); };
  return {.rows = data(entries.rows),
          .factors = nullptr,
          .positions = rotated ? data(entries.positions) : nullptr,
          .query_position = entries.query_position};
}

HostAttention OnHost(const Attention& a, std::span<const HostHead> heads) {
  WINNOW_CHECK(a.top_p >= 1 || (a.q.rows == 1 && !a.taps.any() && a.n_attended != nullptr));
  WINNOW_CHECK(a.q.rows == a.out.rows && a.n_q_heads % static_cast<int>(heads.size()) == 0);
  const HostRows q = Rows(a.q), out = Rows(a.out);
  return {.q = q.data,
          .q_stride = q.stride,
          .out = out.data,
          .out_stride = out.stride,
          .n_queries = q.rows,
          .n_q_heads = a.n_q_heads,
          .key_dim = a.key_dim,
          .value_dim = a.value_dim,
          .key_type = a.key_type,
          .value_type = a.value_type,
          .scale = a.scale,
          .heads = heads,
          .rotation = a.rope == nullptr ? Rotation{} : RotationFrom(*a.rope, a.key_dim),
          .top_p = a.top_p,
          .n_attended = a.n_attended,
          .taps = a.taps,
          .found = a.found};
}

}  // namespace

void HostAttentions::AddHeads(const Attention& a) {
  WINNOW_CHECK(a.entries.empty() || a.entries.size() == a.heads.size());
  WINNOW_CHECK(a.rope == nullptr || !a.entries.empty());
  for (size_t i = 0; i < a.heads.size(); ++i) {
    const HeadStore& head = a.heads[i];
    const HeadEntries entries = a.entries.empty() ? HeadEntries{} : a.entries[i];
    heads_.push_back(
        {.keys = Bytes(head.keys) + head.keys_offset_bytes,
         .values = Bytes(head.values) + head.values_offset_bytes,
         .n_slots = entries.shares_rows() ? static_cast<int64_t>(entries.size()) : head.n_slots,
         .n_rows = head.n_slots,
         .entries = Map(entries, a.rope != nullptr)});
    wide_entries_.Widen(entries, heads_.back().entries);
    const auto n_slots = static_cast<size_t>(heads_.back().n_slots);
    WINNOW_CHECK(entries.factors.empty() || entries.factors.size() == n_slots);
    WINNOW_CHECK(entries.biases.empty() ||
                 (entries.biases.size() == n_slots && !entries.shares_rows()));
    WINNOW_CHECK(a.rope == nullptr || entries.positions.size() == n_slots);
  }
}

std::span<const HostAttention> HostAttentions::View(std::span<const Attention> attentions) {
  heads_.clear();
  wide_entries_.Reserve(attentions);
  for (const Attention& a : attentions) AddHeads(a);
  calls_.clear();
  size_t first_head = 0;
  for (const Attention& a : attentions) {
    calls_.push_back(OnHost(a, std::span(heads_).subspan(first_head, a.heads.size())));
    first_head += a.heads.size();
  }
  return calls_;
}

}  // namespace winnow::kernels::cpu
