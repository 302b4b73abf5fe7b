#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/methods/attention_fit.h"

// Attention Matching of one KV head (arXiv:2602.16284), in pieces like those of attention_fit.h.
namespace winnow::compression::methods {

struct HeadFitOptions {
  double bound = 0;  // largest bias
  int steps = 0;
  bool biases = true;
  bool values = true;
};

// Copy of a KV head's entries. An entry's rank is its place from the oldest (0).
struct HeadToFit {
  size_t n_entries = 0;
  std::vector<float> keys;     // [key_dim, rank]: transposed
  std::vector<float> values;   // [rank, value_dim]
  std::vector<float> factors;  // [rank], e^bias; empty: all 1
  std::vector<float> queries;  // [row, key_dim], the reference queries
  size_t key_dim = 0, value_dim = 0;
  float scale = 0;  // attention's scale, of query . key
  size_t n_kept = 0;
  size_t n_protected = 0;  // newest entries that are always kept
};

class HeadFit {
 public:
  HeadFit(HeadToFit head, const HeadFitOptions& options);
  // Works as LeastSquares::Run does. The smallest piece is one row's weights for all entries, or
  // the smallest piece of the fits.
  int64_t Run(kernels::Backend& backend, int64_t max_work);
  bool done() const { return stage_ == Stage::kDone; }

  // The results are valid once done() is true. Ranks are ascending.
  const std::vector<int32_t>& kept() const { return kept_; }
  const std::vector<int32_t>& evicted() const { return evicted_; }
  // [kept], e^b, where b is to be added to the bias that the entry has; empty: no biases are
  // fitted.
  const std::vector<double>& factors() const { return factor_fit_.factors(); }
  const Numbers& values() const { return value_fit_.solution(); }  // [kept, value_dim], or empty

 private:
  enum class Stage { kWeigh, kChoose, kWeighKept, kFactors, kNormalise, kValues, kDone };
  int64_t Weigh(kernels::Backend& backend, int64_t max_work);
  void Choose();
  int64_t WeighKept(kernels::Backend& backend, int64_t max_work);
  int64_t Normalise(kernels::Backend& backend, int64_t max_work);
  void Logits(const kernels::Backend& backend, Rows rows, std::span<float> out) const;
  void Exponentials(const kernels::Backend& backend, float max, std::span<float> logits) const;
  void AddOutputs(const kernels::Backend& backend, Rows rows, std::span<const float> weights);
  void DropEvicted();
  void Enter(Stage stage) {
    stage_ = stage;
    next_ = 0;
  }

  HeadToFit head_;
  HeadFitOptions options_;
  Stage stage_ = Stage::kWeigh;
  size_t next_ = 0;             // next row of the stage
  std::vector<float> max_;      // [row], the largest logit
  std::vector<double> mass_;    // [row], sum of exp(logit - max)
  std::vector<double> square_;  // [rank], sum of the squares of an entry's weights
  Numbers outputs_;             // [row, value_dim]
  std::vector<int32_t> kept_, evicted_;
  Numbers weights_;  // [row, kept]
  FactorFit factor_fit_;
  LeastSquares value_fit_;
};

}  // namespace winnow::compression::methods
