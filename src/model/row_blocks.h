#pragma once

#include <cstdint>
#include <span>

#include "attention/layer_pass.h"

// How the rows of a layer are cut into the blocks that are computed at a time.
namespace winnow::model {

// Rows of the next block where n_left are left: at most row_block and max_rows, but not so that
// those left over are few, whose products would be computed in another way.
// Requires: n_left, row_block > 0.
int64_t NextBlock(int64_t n_left, int64_t row_block, int64_t max_rows);

// The same where the bits of a row must not depend on the rows beside it. Attention takes the
// queries of a span that are in a block together, so every span is cut at the same of its rows,
// 128 at a time, whatever other spans there are and however much time there is; max_rows bounds
// only what further spans add. next_row: of the layer, where a block began or ended before.
int64_t NextInvariantBlock(std::span<const attention::LayerPass::Span> spans, int64_t next_row,
                           int64_t row_block, int64_t max_rows);

}  // namespace winnow::model
