#include "model/row_blocks.h"

#include <algorithm>

namespace winnow::model {

int64_t NextBlock(int64_t n_left, int64_t row_block, int64_t max_rows) {
  // Products of fewer rows may use a different, slower kernel.
  constexpr int64_t kFewRows = 16;
  const int64_t n = std::min({row_block, n_left, std::max<int64_t>(1, max_rows)});
  const int64_t n_over = n_left - n;
  if (max_rows >= row_block || n_over == 0 || n_over >= kFewRows) return n;
  if (n_left >= 2 * kFewRows) return std::min(n, n_left - kFewRows);
  return n_left <= row_block ? n_left : n;
}

int64_t NextInvariantBlock(std::span<const attention::LayerPass::Span> spans, int64_t next_row,
                           int64_t row_block, int64_t max_rows) {
  // Rows of one span in a block: few, because they cannot adapt to max_rows.
  constexpr int64_t kRowsOfSpan = 128;
  int64_t n = 0;
  int64_t first = 0;  // first row of the span
  for (const auto& span : spans) {
    const int64_t end = first + span.n_rows;
    const int64_t begin = std::max(first, next_row);
    first = end;
    if (begin >= end) continue;
    const int64_t n_of_span = std::min({end - begin, kRowsOfSpan, row_block});
    if (n > 0 && n + n_of_span > std::min(row_block, max_rows)) break;
    n += n_of_span;
    if (begin + n_of_span < end) break;
  }
  return n;
}

}  // namespace winnow::model
