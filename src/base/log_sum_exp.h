#pragma once

#include <span>

namespace winnow {

// log(sum of exp(values)), in double; NaN where a value is. Requires: not empty.
double LogSumExp(std::span<const float> values);
// Log-probabilities of logits; NaN where LogSumExp is. Requires: as many of both, not empty.
void LogSoftmax(std::span<const float> logits, std::span<float> log_probs);

}  // namespace winnow
