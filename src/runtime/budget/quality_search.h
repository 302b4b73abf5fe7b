#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

// How small a cache may be for what is read after it to go on as with the full one
// (CompressionOptions::quality).
namespace winnow::runtime {

class Session;

// How far a compressed cache is from the full one, on the tokens of the probes.
struct QualityEstimate {
  double kl = 0;              // KL divergence from the full cache's distribution, the mean in nats
  double standard_error = 0;  // of the mean
  double p99 = 0;             // of the tokens
  int64_t n_tokens = 0;
  // What the mean is below in 95 of 100 cases, if tokens were independent.
  double bound() const;
};

// What a search ended with.
struct QualityFound {
  int64_t budget = 0;             // slots per KV head; all of the prompt's where no less would do
  double share = 0;               // of the prompt's tokens
  QualityEstimate estimate = {};  // under that budget; of no tokens where everything stays
  int n_tried = 0;                // budgets
};

// A text that is read after the prompt.
struct QualityProbe {
  std::vector<tokenizer::TokenId> tokens;
  int64_t first = 0;  // whose logits count, and those after it
};

// Searches the smallest budget whose estimate is within a target. What the full cache says of some
// probes after the prompt is compared with what compressed ones say: texts of the model's own, and
// parts of the prompt that it is asked to repeat, those for which it needs the prompt most. An
// estimate for what is like the probes, and no guarantee (docs/decisions/0023-quality-estimate.md).
class QualitySearch {
 public:
  // Prompts of fewer tokens are left whole.
  static constexpr int64_t kMinPrompt = 256;

  // Error: the context has no room for probes after a text of n_text tokens.
  static Result<void> CheckRoom(int64_t n_text, int64_t capacity);

  // `full`: a session without a method that holds the whole text, and its logits, which it loses.
  // prompt: the text's last tokens, of which parts are asked for. min_budget: the smallest that the
  // method takes. Requires: CheckRoom passed. Error: that of the model.
  static Result<QualitySearch> Begin(Session& full, std::span<const tokenizer::TokenId> prompt,
                                     double target, int64_t min_budget);

  // The budget to try next; nothing: the search is over.
  std::optional<int64_t> next() const;
  // Reads the probes over a cache that was compressed to that budget, in a session without a
  // method, which holds the same text afterwards. Error: that of the model.
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
  std::vector<float> log_probs_;  // [token that counts, vocabulary], of the full cache
  std::vector<int64_t> budgets_;  // that can be tried, falling
  size_t passes_ = 0;             // as many of them are taken to be within the target
  size_t fails_ = 0;              // from this one on they are not
  QualityEstimate estimate_;      // of the last that was found to be
  int n_tried_ = 0;
};

}  // namespace winnow::runtime
