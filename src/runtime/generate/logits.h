#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

struct TokenProbability {
  TokenId token = 0;
  float log_probability = 0;
};
// The log-probabilities of a token and of the n_top most likely ones; on a tie the lower token id
// comes first.
struct Probabilities {
  float log_probability = 0;
  std::vector<TokenProbability> top = {};
};
Probabilities ComputeProbabilities(std::span<const float> logits, TokenId token, int64_t n_top);

// Checks that a token can be chosen from the session's logits. Error: some are NaN or +infinity;
// the message says after how many tokens, and what to do.
Result<void> CheckLogits(Session& session);

}  // namespace winnow::runtime
