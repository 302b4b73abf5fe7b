#include "runtime/batch.h"

#include <string>

#include "base/check.h"

namespace winnow::runtime {

Result<void> Batch::Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens) {
  WINNOW_CHECK(sessions.size() == tokens.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    WINNOW_CHECK(&sessions[i]->engine() == &engine_);
    if (const auto prepared = sessions[i]->PrepareStep(tokens[i]); !prepared) {
      return Error{"sequence " + std::to_string(i) + " of " + std::to_string(sessions.size()) +
                   ": " + prepared.error().message};
    }
  }
  steps_.clear();
  for (size_t i = 0; i < sessions.size(); ++i) {
    steps_.push_back(sessions[i]->BeginStep(tokens[i]));
  }
  model::BatchRequest request = {.sequences = steps_};
  request.after_layer = [&sessions](int layer, size_t i, const kernels::Taps& taps) {
    sessions[i]->AfterLayer(layer, taps);
    return Result<void>();
  };
  const Result<void> done = engine_.model().ForwardBatch(request);
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (done) {
      sessions[i]->EndStep(tokens[i]);
    } else {
      sessions[i]->AbandonStep();
    }
  }
  return done;
}

}  // namespace winnow::runtime
