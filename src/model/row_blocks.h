#pragma once

#include <cstdint>
#include <span>

#include "attention/layer_pass.h"

// Splits the rows of a layer into the blocks that are computed at a time.
namespace winnow::model {

// Number of rows of the next block when n_left rows are left: at most row_block and about max_rows.
// Avoids leaving a few rows for the last block, because products of few rows use a different,
// slower kernel. Requires: n_left, row_block > 0.
int64_t NextBlock(int64_t n_left, int64_t row_block, int64_t max_rows);

// The same for a batch-invariant backend, where the bits of a row must not depend on other rows.
// Attention processes the queries of a span in a block together. Therefore every span is split at
// the same rows, every 128, whatever the other spans and max_rows are; max_rows limits only the
// rows that further spans add. next_row: row of the layer where the block starts; it must be the
// end of a block returned before, or 0.
int64_t NextInvariantBlock(std::span<const attention::LayerPass::Span> spans, int64_t next_row,
                           int64_t row_block, int64_t max_rows);

}  // namespace winnow::model
