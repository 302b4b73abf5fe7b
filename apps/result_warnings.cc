#include "result_warnings.h"

#include <string>

#include "kernels/overflow.h"

namespace winnow::apps {

ResultWarnings::ResultWarnings(const Model& model, Log& log)
    : count_([model] {
        return Counts{.n_overflowed = model.n_overflowed(),
                      .n_not_replayed = model.n_not_replayed()};
      }),
      log_(log) {}

ResultWarnings::ResultWarnings(runtime::Engine& engine, Log& log)
    : count_([&engine] {
        return Counts{.n_overflowed = kernels::NOverflowed(engine.backend()),
                      .n_not_replayed = engine.n_not_replayed()};
      }),
      log_(log) {}

ResultWarnings::~ResultWarnings() {
  const Counts counts = count_();
  if (const int64_t n = counts.n_overflowed; n > 0) {
    log_.Warning(
        std::to_string(n) + (n == 1 ? " value was" : " values were") +
        " too large for the cache and became infinite: results are wrong. Use -ctk bf16 -ctv bf16, "
        "which have the range of float; the largest value is 65504 in f16, 127 x 65504 in q8_0, "
        "8 x 65504 in q4_0");
  }
  if (const int64_t n = counts.n_not_replayed; n > 0) log_.Warning(runtime::NotReplayedText(n));
}

}  // namespace winnow::apps
