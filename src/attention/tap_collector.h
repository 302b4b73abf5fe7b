#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace winnow::attention {

// Joins the taps of the row blocks of one layer into those of the whole call. A layer's queries are
// attended in blocks, in text order; the last rows that were asked for may span several blocks.
class TapCollector {
 public:
  // Taps wanted of a call of `n_queries` queries.
  TapCollector(const kernels::TapSpec& spec, int64_t n_queries);

  // First query of the call whose attention weights are needed; n_queries if none is.
  int64_t first_query() const;
  // What to ask of the block of queries [first, end).
  kernels::TapSpec SpecOf(int64_t first, int64_t end) const;
  // Adds what a block found. Slots must not have changed since the blocks before, other than by
  // appending.
  void Add(kernels::Taps&& block);
  // The taps of all blocks; the collector is then ready for the next layer.
  kernels::Taps Take();

 private:
  kernels::TapSpec spec_;
  int64_t n_queries_;
  kernels::Taps all_;
};

}  // namespace winnow::attention
