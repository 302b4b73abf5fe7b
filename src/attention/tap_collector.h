#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace winnow::attention {

// Joins the taps of a layer's row blocks into those of the whole call. A layer's queries are
// attended in blocks, in text order; the last rows may span several blocks. The taps of a call of
// one block are the kernel's own, without a copy. Memory is reused from layer to layer and call to
// call.
class TapCollector {
 public:
  TapCollector() = default;

  // Begins a layer: `spec` for a call of `n_queries` queries. Discards what was found before.
  void Start(const kernels::TapSpec& spec, int64_t n_queries);

  // First query of the call whose attention weights are needed; n_queries if none are.
  int64_t first_query() const;
  // The taps to ask of the queries [first, end).
  kernels::TapSpec SpanTaps(int64_t first, int64_t end) const;
  // The destination of the next block's taps.
  kernels::Taps& block() { return n_added_ == 0 ? all_ : block_; }
  // Adds the taps in block(). Since the blocks before, entries may only have been appended.
  void Add();
  // The taps of all blocks so far. Valid until Start.
  const kernels::Taps& all() const { return n_added_ == 0 ? none_ : all_; }

 private:
  kernels::TapSpec spec_;
  int64_t n_queries_ = 0;
  int64_t n_added_ = 0;  // blocks
  kernels::Taps all_;    // the first block writes here
  kernels::Taps block_;
  kernels::Taps none_;  // the result without any block
};

}  // namespace winnow::attention
