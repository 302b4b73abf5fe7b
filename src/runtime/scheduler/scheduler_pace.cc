#include "runtime/scheduler/scheduler_pace.h"

#include <algorithm>

namespace winnow::runtime {
namespace {

// Estimates rise at once and fall slowly. Rows at the end of a layer attend to more entries, and
// take longer, than rows at the beginning of the next layer: those must not lower the estimate for
// the rows that follow.
constexpr double kDecay = 0.98;
// Minimum rows of a block: it keeps most of the gain of products of many rows, and is enough for
// the last block of a prompt (model::Quota::n_rows).
constexpr int64_t kMinRows = 32;
constexpr int64_t kGrain = 16;
constexpr int64_t kFirstRows = 64;   // before anything was measured
constexpr double kBlockShare = 0.2;  // share of the gap for one block
constexpr double kMargin = 0.9;      // share of the gap that is planned for: times vary

}  // namespace

void Pace::AddDecode(double ms) { decode_ms_ = std::max(ms, decode_ms_ * kDecay); }

void Pace::AddBlock(int64_t n_rows, double ms) {
  if (n_rows < 1) return;
  row_ms_ = std::max(ms / static_cast<double>(n_rows), row_ms_ * kDecay);
}

int64_t Pace::BlockRows() const {
  if (row_ms_ <= 0) return std::min(kFirstRows, row_block_);
  const double rows = max_gap_ms_ * kBlockShare / row_ms_;
  if (rows >= static_cast<double>(row_block_)) return row_block_;
  const auto whole = static_cast<int64_t>(rows) / kGrain * kGrain;
  return std::clamp(whole, std::min(kMinRows, row_block_), row_block_);
}

bool Pace::Fits(double since_ms, int64_t n_rows) const {
  const double block_ms = row_ms_ * static_cast<double>(n_rows);
  return since_ms + block_ms + decode_ms_ <= max_gap_ms_ * kMargin;
}

}  // namespace winnow::runtime
