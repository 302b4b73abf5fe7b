#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

// How small a cache may be so that text read after it continues as with the full one
// (CompressionOptions::quality).
namespace winnow::runtime {

class Session;

// Distance of a compressed cache from the full one, on the tokens of the probes.
struct QualityEstimate {
  double kl = 0;              // KL divergence from the full cache's distribution, the mean in nats
  double standard_error = 0;  // of the mean
  double p99 = 0;             // 99th percentile over the tokens
  int64_t n_tokens = 0;
  // Upper bound of the mean with 95 % confidence, if tokens were independent.
  double bound() const;
};

// The result of a search.
struct QualityFound {
  int64_t budget = 0;  // slots per KV head; all tokens of the text if no smaller one was enough
  double share = 0;    // share of the text's tokens
  QualityEstimate estimate = {};  // under that budget; n_tokens is 0 if everything is kept
  int n_tried = 0;                // budgets
};

// A text that is read after the prompt.
struct QualityProbe {
  std::vector<tokenizer::TokenId> tokens;
  int64_t first = 0;  // first token whose logits count
};

// Searches the smallest budget whose estimate is within a target. It compares the logits of the
// full cache with those of compressed caches on probes read after the prompt: texts that the model
// continues with, and parts of the prompt that it is asked to repeat, those for which it needs the
// prompt most. This is an estimate for texts like the probes, not a guarantee
// (docs/decisions/0023-quality-estimate.md).
class QualitySearch {
 public:
  // Texts of fewer tokens are left uncompressed.
  static constexpr int64_t kMinPrompt = 256;

  // Error: no room in the context for probes after a text of n_text tokens.
  static Result<void> CheckRoom(int64_t n_text, int64_t capacity);

  // `full`: a session without a method that holds the whole text and its logits, which it loses.
  // prompt: the last tokens of the text, from which parts to repeat are taken. min_budget: the
  // method's minimum. Requires: CheckRoom passed. Error: that of the model.
  static Result<QualitySearch> Begin(Session& full, std::span<const tokenizer::TokenId> prompt,
                                     double target, int64_t min_budget);

  // The budget to try next; nothing: the search is over.
  std::optional<int64_t> next() const;
  // Reads the probes after a cache that was compressed to that budget, held by a session without a
  // method, which is unchanged afterwards. Error: that of the model.
  Result<void> Try(Session& compressed);
  // Requires: the search is over.
  QualityFound found() const;
  int n_tried() const { return n_tried_; }
  std::span<const QualityProbe> probes() const { return probes_; }

 private:
  QualitySearch() = default;
  size_t NextIndex() const { return passes_ + (fails_ - passes_) / 2; }
  Result<void> AddOwnTexts(Session& full);
  Result<void> AddParts(Session& full, std::span<const tokenizer::TokenId> prompt, int64_t room);
  Result<void> ReadFull(Session& full);

  double target_ = 0;
  int64_t n_text_ = 0;
  std::vector<QualityProbe> probes_;
  std::vector<float> log_probs_;  // [token that counts, vocabulary], full cache
  std::vector<int64_t> budgets_;  // candidates, descending
  size_t passes_ = 0;             // this many of them are assumed to be within the target
  size_t fails_ = 0;              // from this index on they are assumed not to be
  QualityEstimate estimate_;      // of the last budget found to be within the target
  int n_tried_ = 0;
};

}  // namespace winnow::runtime
