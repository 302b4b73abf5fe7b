#include "compression/question.h"

namespace winnow::compression {

bool ChoosesByTheQuestion(const Method& method) {
  const kernels::TapSpec taps = method.needs().prefill;
  return method.traits().compresses_prefill && (taps.last_rows > 0 || taps.last_sums > 0);
}

}  // namespace winnow::compression
