#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention/rows.h"
#include "kernels/ops.h"

namespace winnow::attention {

// Copies the rows a method asked for out of the row blocks of one layer. Blocks come in text order.
// Each is shown up to three times: before RoPE with its hidden states, with its final queries, and
// after attention.
class RowCollector {
 public:
  // Begins a layer of a call of n_rows rows. Discards what was collected before.
  void Start(const RowSpec& spec, int64_t n_rows);
  bool any() const { return spec_.any(); }
  bool wants_outputs() const { return spec_.any() && spec_.outputs; }
  // The first row asked for; n_rows if there is none.
  int64_t first_row() const { return rows_.rows.empty() ? n_rows_ : rows_.rows.front(); }

  // Row 0 of every matrix is row `first` of the call. If `hidden` is empty, norms are zero.
  void AddBefore(kernels::Backend& backend, int64_t first, const kernels::Matrix& q,
                 const kernels::Matrix& hidden, std::span<const cache::Position> positions);
  void AddQueries(kernels::Backend& backend, int64_t first, const kernels::Matrix& q);
  void AddOutputs(kernels::Backend& backend, int64_t first, const kernels::Matrix& out);

  // Valid until Start.
  const Rows& all() const { return rows_; }

 private:
  // The range of indices into rows_.rows whose rows lie in [first, first + n).
  std::pair<size_t, size_t> Within(int64_t first, int64_t n) const;
  // Appends those rows of a matrix that were asked for to `to`.
  void Copy(kernels::Backend& backend, int64_t first, const kernels::Matrix& from,
            std::vector<float>& to) const;

  RowSpec spec_;
  int64_t n_rows_ = 0;
  Rows rows_;
  std::vector<float> row_;  // buffer
};

}  // namespace winnow::attention
