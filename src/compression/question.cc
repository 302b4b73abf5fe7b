#include "compression/question.h"

namespace winnow::compression {

bool ChoosesByTheQuestion(const Method& method) {
  const Needs needs = method.needs();
  const kernels::TapSpec& taps = needs.prefill;
  return method.traits().decisions.Evicts(Phase::kPrefill) &&
         (taps.last_rows > 0 || taps.last_sums > 0 || needs.asks_the_last_rows());
}

}  // namespace winnow::compression
