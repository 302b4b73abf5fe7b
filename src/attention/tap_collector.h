#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace winnow::attention {

// Joins the taps of the row blocks of one layer into those of the whole call. A layer's queries are
// attended in blocks, in text order; the last rows that were asked for may span several blocks. The
// taps of a call of one block are the kernel's own. Memory is kept from layer to layer and call to
// call.
class TapCollector {
 public:
  TapCollector() = default;

  // The next layer: taps wanted of a call of `n_queries` queries. Forgets what was found before.
  void Start(const kernels::TapSpec& spec, int64_t n_queries);

  // First query of the call whose attention weights are needed; n_queries if none is.
  int64_t first_query() const;
  // What to ask of the block of queries [first, end).
  kernels::TapSpec SpanTaps(int64_t first, int64_t end) const;
  // Where attention puts what it finds in the next block.
  kernels::Taps& block() { return n_added_ == 0 ? all_ : block_; }
  // Adds what is in block(). Entries must not have changed since the blocks before, other than by
  // appending.
  void Add();
  // The taps of all blocks so far. Valid until Start.
  const kernels::Taps& all() const { return n_added_ == 0 ? none_ : all_; }

 private:
  kernels::TapSpec spec_;
  int64_t n_queries_ = 0;
  int64_t n_added_ = 0;  // blocks
  kernels::Taps all_;    // the first block is found here
  kernels::Taps block_;
  kernels::Taps none_;  // what no block has found
};

}  // namespace winnow::attention
