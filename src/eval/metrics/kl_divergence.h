#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/statistics.h"

namespace winnow::eval {

// The comparison of a run with a reference run at one token.
struct RowComparison {
  double nll = 0;           // of the token that came next
  double nll_base = 0;      // in the reference
  double kld = 0;           // KL(reference || this), nats
  double p_difference = 0;  // p(next) - p_base(next)
  bool same_top = false;    // both find the same token most likely
  bool clipped = false;  // the reference only says that next is below e^-16 of its likeliest token

  // Leaves out terms of the reference below e^-16, as llama-perplexity does, because its files do
  // not tell them apart.
  //   logits, base_log_probs  [vocabulary]
  static RowComparison Make(std::span<const float> logits, std::span<const float> base_log_probs,
                            int32_t next);
};

// Accumulates the comparison of two runs over a text.
class KlDivergence {
 public:
  void Add(const RowComparison& row);

  const MeanEstimate& nll() const { return nll_; }
  const MeanEstimate& nll_base() const { return nll_base_; }
  // Logarithm of the ratio of the perplexities. If the reference is clipped, a token that is even
  // less likely here counts as equally likely, because the file cannot tell.
  const MeanEstimate& log_ratio() const { return log_ratio_; }
  int64_t n_clipped() const { return n_clipped_; }  // clipped tokens
  const MeanEstimate& kld() const { return kld_; }
  const MeanEstimate& p_difference() const { return p_difference_; }
  double rms_p_difference() const;
  const MeanEstimate& same_top() const { return same_top_; }  // share of tokens
  // All KL divergences, sorted (for Percentile).
  std::vector<float> SortedKlds() const;

 private:
  MeanEstimate nll_, nll_base_, log_ratio_, kld_, p_difference_, squared_p_difference_, same_top_;
  std::vector<float> klds_;
  int64_t n_clipped_ = 0;
};

}  // namespace winnow::eval
