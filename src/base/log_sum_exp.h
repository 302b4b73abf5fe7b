#pragma once

#include <span>

namespace winnow {

// log(sum(exp(values))), computed in double; NaN if a value is NaN. Requires: not empty.
double LogSumExp(std::span<const float> values);
// Log probabilities of logits; NaN if LogSumExp is NaN. Requires: equal sizes, not empty.
void LogSoftmax(std::span<const float> logits, std::span<float> log_probs);

}  // namespace winnow
