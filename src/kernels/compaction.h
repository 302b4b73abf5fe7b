#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/half.h"
#include "kernels/memory.h"

// Arguments of the operations that compression runs on stored rows: read, merge, compare, score.
namespace winnow::kernels {

// The rows of one storage that belong to one KV head: all its keys or all its values.
struct HeadRows {
  Storage* storage = nullptr;
  int64_t offset_bytes = 0;  // of row 0
  int dim = 0;
  TensorType type = TensorType::kF16;
  bool hadamard = false;  // rows went through Backend::Hadamard before they were stored
};

// One new row as a weighted sum of rows: into = sum of weights[i] * rows[i].
struct RowSum {
  int32_t into = 0;
  std::span<const int32_t> rows;
  std::span<const float> weights;
};

// A search: for every row of `from`, the most similar row of `to`.
struct Similarity {
  // kProduct: the product of the two cosines.
  enum class Measure { kKeys, kValues, kProduct };
  HeadRows keys;
  HeadRows values;  // not read for kKeys
  Measure measure = Measure::kKeys;
  std::span<const int32_t> from;
  std::span<const int32_t> to;  // not empty; ascending rows are read fastest
  // [row] Ties go to the row of lowest rank. Empty: to the first in `to`. Requires: empty, or every
  // row is below ranks.size().
  std::span<const int32_t> ranks = {};
  // Rows less similar than this do not count; the kernel may stop comparing them early.
  double min_similarity = -std::numeric_limits<double>::infinity();
  std::span<float> best;       // out [from]: cosine, 0 where one of the two rows is zero
  std::span<int32_t> best_to;  // out [from]: index into `to`; kNone, with best = -infinity, if all
                               // are below `min_similarity`
  static constexpr int32_t kNone = -1;
};

// Attention that the entries of one KV head received, [entry]: in total, and in two windows of
// queries. Host data.
struct AttentionSums {
  std::span<double> total;
  std::span<Half> past;     // in the last complete window
  std::span<Half> current;  // in the current, incomplete window
};
// Sums over the entries.
struct AttentionTotals {
  double total = 0;
  double window = 0;  // of past and current
};

// Cosines of rows to the mean of their unit vectors.
struct MeanCosines {
  HeadRows head;
  std::span<const int32_t> rows;
  // out [row]: -1 to 1; 0 for a zero row, and for all rows if the mean is zero. A row with NaN or
  // an infinity makes all cosines NaN.
  std::span<double> cosines;
};

}  // namespace winnow::kernels
