#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/lists.h"
#include "kernels/ops.h"

namespace winnow::kernels::cpu {

// Rows, factors and biases of all heads of some calls, converted to the types of the kernels.
class WideEntries {
 public:
  explicit WideEntries(const ListKernels& lists) : lists_(lists) {}

  void Reserve(std::span<const Attention> attentions) {
    size_t n = 0;
    for (const Attention& a : attentions) {
      for (const HeadEntries& entries : a.entries) {
        n += Floats(entries);
      }
    }
    n_used_ = 0;
    if (rows_.size() >= n) return;
    n = (n + kPage - 1) / kPage * kPage;  // a growing cache returns with one more entry
    rows_.resize(n);
    factors_.resize(n);
  }
  // Converts the entries of one head and points `map` at them. Requires: Reserve counted these
  // entries.
  void Widen(const HeadEntries& entries, EntryMap& map) {
    if (!entries.short_rows.empty()) {
      std::ranges::copy(entries.short_rows, rows_.begin() + static_cast<ptrdiff_t>(n_used_));
      map.rows = rows_.data() + n_used_;
    }
    if (!entries.factors.empty()) {
      lists_.to_floats(entries.factors, factors_.data() + n_used_);
      map.factors = factors_.data() + n_used_;
    }
    if (!entries.biases.empty()) {
      // Scores are in units of log2.
      constexpr float kLog2E = 1.44269504088896340736f;
      float* biases = factors_.data() + n_used_ + entries.factors.size();
      lists_.to_floats(entries.biases, biases);
      for (size_t i = 0; i < entries.biases.size(); ++i) biases[i] *= kLog2E;
      map.biases = biases;
    }
    n_used_ += Floats(entries);
  }

 private:
  static constexpr size_t kPage = 1024;  // granularity of growth, entries

  static size_t Floats(const HeadEntries& entries) {
    return std::max(entries.short_rows.size(), entries.factors.size() + entries.biases.size());
  }

  const ListKernels& lists_;
  std::vector<int32_t> rows_;
  std::vector<float> factors_;
  size_t n_used_ = 0;
};

}  // namespace winnow::kernels::cpu
