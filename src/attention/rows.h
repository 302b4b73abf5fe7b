#pragma once

#include <cstdint>
#include <vector>

#include "cache/plan.h"

namespace winnow::attention {

// Rows of a call that a method wants to read, layer by layer: queries, outputs of attention, and
// the norm of the residual stream. What is not requested costs nothing.
struct RowSpec {
  enum class Which {
    kNone,
    kAll,
    kEven,  // `n` rows at equal distances: the middles of `n` equal parts of the call
    kLast,  // the last `n`
  };
  Which which = Which::kNone;
  int64_t n = 0;
  bool queries_before_rope = false;
  bool queries = false;  // in the form of the stored keys: after RoPE if keys are stored rotated
  bool outputs = false;  // of attention, before the output projection
  bool norms = false;    // of the residual stream at the layer's input

  bool any() const { return which != Which::kNone; }
  bool operator==(const RowSpec&) const = default;
};

// The rows that `spec` selects of a call of n_rows, ascending.
std::vector<int64_t> ChooseRows(const RowSpec& spec, int64_t n_rows);

// The requested data of one layer, in host memory. What was not requested is empty.
struct Rows {
  std::vector<int64_t> rows;               // of the call, ascending
  std::vector<cache::Position> positions;  // [row], in the text
  std::vector<float> queries_before_rope;  // [row, n_heads * key_dim]
  std::vector<float> queries;              // [row, n_heads * key_dim]
  std::vector<float> outputs;              // [row, n_heads * value_dim]
  std::vector<float> norms;                // [row], L2

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
};

}  // namespace winnow::attention
