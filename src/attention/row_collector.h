#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "attention/rows.h"
#include "kernels/ops.h"

namespace winnow::attention {

// Copies the rows a method wants out of the row blocks of one layer. Blocks come in text order, and
// each is shown up to three times: before RoPE, with its hidden states, and when it was attended.
class RowCollector {
 public:
  // The next layer, of a call of n_rows rows. Forgets what was collected before.
  void Start(const RowSpec& spec, int64_t n_rows);
  bool any() const { return spec_.any(); }
  bool wants_outputs() const { return spec_.any() && spec_.outputs; }
  // The first wanted row; n_rows if there is none.
  int64_t first_row() const { return rows_.rows.empty() ? n_rows_ : rows_.rows.front(); }

  // Row 0 of every matrix is row `first` of the call. `hidden` may be empty: norms are zero then.
  void AddBefore(kernels::Backend& backend, int64_t first, const kernels::Matrix& q,
                 const kernels::Matrix& hidden, std::span<const cache::Position> positions);
  void AddQueries(kernels::Backend& backend, int64_t first, const kernels::Matrix& q);
  void AddOutputs(kernels::Backend& backend, int64_t first, const kernels::Matrix& out);

  // Valid until Start.
  const Rows& all() const { return rows_; }

 private:
  // Of the wanted rows those in [first, first + n): their numbers in rows_.rows.
  std::pair<size_t, size_t> Within(int64_t first, int64_t n) const;
  // Appends the wanted rows of a matrix to `to`.
  void Copy(kernels::Backend& backend, int64_t first, const kernels::Matrix& from,
            std::vector<float>& to) const;

  RowSpec spec_;
  int64_t n_rows_ = 0;
  Rows rows_;
  std::vector<float> row_;  // working memory
};

}  // namespace winnow::attention
