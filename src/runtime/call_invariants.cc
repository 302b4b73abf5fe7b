#include "runtime/call_invariants.h"

namespace winnow::runtime {
namespace {

int64_t LiveBytes(const cache::Cache& cache, int layer) {
  int64_t bytes = 0;
  for (int head = 0; head < cache.config().shape.layer(layer).n_kv_heads; ++head) {
    bytes += cache.live_bytes(layer, head);
  }
  return bytes;
}

}  // namespace

void CallInvariants::CheckBytes(const cache::Cache& cache, const Limits& limits) {
  if (!kChecksInvariants) return;
  live_bytes_ = cache.live_bytes();
  layer_bytes_.assign(static_cast<size_t>(cache.config().shape.n_layers), 0);
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    layer_bytes_[static_cast<size_t>(layer)] = LiveBytes(cache, layer);
  }
  CheckLimits(limits);
}

void CallInvariants::CheckBytes(const cache::Cache& cache, int layer, const Limits& limits) {
  if (!kChecksInvariants) return;
  int64_t& bytes = layer_bytes_[static_cast<size_t>(layer)];
  live_bytes_ -= bytes;
  bytes = LiveBytes(cache, layer);
  live_bytes_ += bytes;
  CheckLimits(limits);
}

void CallInvariants::CheckLimits(const Limits& limits) {
  const int64_t live = live_bytes_;
  Record(WINNOW_INVARIANT(invariants_, limits.memory == 0 || live <= limits.memory));
  Record(WINNOW_INVARIANT(invariants_, live <= limits.planned));
  Record(WINNOW_INVARIANT(invariants_, live <= limits.reserved));
}

void CallInvariants::CheckSizes(bool keeps_sizes) {
  Record(WINNOW_INVARIANT(invariants_, keeps_sizes));
}

void CallInvariants::Record(const Result<void>& holds) {
  if (!holds && !violation_) violation_ = holds.error();
}

Result<void> CallInvariants::FirstViolation() const {
  return violation_ ? Result<void>(*violation_) : Result<void>();
}

}  // namespace winnow::runtime
