#include "kernels/cpu/attention/attention.h"

#include <vector>

#include "base/check.h"
#include "kernels/cpu/attention/attention_call.h"
#include "kernels/taps.h"

namespace winnow::kernels::cpu {
namespace {

const DecodeKernels& CheckedDecodeKernels(const Call& call, int64_t target) {
  const DecodeKernels& kernels = DecodeKernelsFor(target);
  // The two are compiled for different sets of targets (simd/targets.h).
  WINNOW_CHECK(kernels.n_lanes == call.shape.block_scores->n_lanes);
  return kernels;
}

void ClearTaps(const Call& call) {
  const HostAttention& a = call.a;
  if (!a.taps.any()) return;
  const int64_t n_lists = TapLists(a.taps.reduce, call.n_heads, call.shape.group);
  PrepareTaps(a.taps, a.n_queries, n_lists, *a.found);
  for (int64_t list = 0; list < n_lists; ++list) {
    PrepareTapList(a.taps, list, a.heads[list / call.ListsPerHead()].n_slots, *a.found);
  }
}

}  // namespace

void Attend(const HostAttention& a, const Processor& processor, AttentionScratch& scratch,
            ThreadPool& pool) {
  const int64_t target = processor.target;
  const auto n_heads = static_cast<int64_t>(a.heads.size());
  WINNOW_CHECK(n_heads > 0 && a.n_q_heads % n_heads == 0);
  bool by_rows = a.top_p < 1;
  for (const HostHead& head : a.heads) {
    WINNOW_CHECK(head.n_slots >= a.n_queries);
    by_rows |= head.entries.rows != nullptr;
  }
  if (a.n_queries == 0) return;
  constexpr float kLog2E = 1.44269504088896340736f;
  const Call call = {.a = a,
                     .shape = {.group = static_cast<int>(a.n_q_heads / n_heads),
                               .key_dim = a.key_dim,
                               .value_dim = a.value_dim,
                               .key_type = a.key_type,
                               .value_type = a.value_type,
                               .scale = a.scale * kLog2E,
                               .key_row_bytes = gguf::RowBytes(a.key_type, a.key_dim),
                               .value_row_bytes = gguf::RowBytes(a.value_type, a.value_dim),
                               .rotation = a.rotation,
                               .prefetch = processor.kv_cache,
                               .block_scores = &BlockScoreKernelsFor(target)},
                     .n_heads = n_heads,
                     .scratch = scratch,
                     .pool = pool};
  ClearTaps(call);
  // Of a block with column taps only (many_queries.cc); other calls need not hold it.
  const bool keeps_weights = (a.taps.column_sums || a.taps.column_max) && a.n_queries > 1;
  if (!keeps_weights) std::vector<float>().swap(scratch.kept);
  // With up to a dozen rows, a block of AttendManyQueries would be mostly empty.
  constexpr int64_t kFewRows = 12;
  const bool few = a.n_queries == 1 || a.n_queries * call.shape.group <= kFewRows;
  if (by_rows && a.n_queries == 1) {
    AttendByRows(call, CheckedDecodeKernels(call, target));
  } else if (few && !by_rows) {
    AttendFewQueries(call, CheckedDecodeKernels(call, target));
  } else {
    AttendManyQueries(call, PrefillKernelsFor(target), TapKernelsFor(target));
  }
}

}  // namespace winnow::kernels::cpu
