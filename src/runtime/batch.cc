#include "runtime/batch.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace winnow::runtime {
namespace {

// Buffers of so many rows are kept from step to step.
constexpr int64_t kMinRowBlock = 512;

}  // namespace

Result<void> Batch::Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens) {
  WINNOW_CHECK(sessions.size() == tokens.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    WINNOW_CHECK(&sessions[i]->engine() == &engine_);
    if (const auto prepared = sessions[i]->PrepareStep(tokens[i]); !prepared) {
      return Error{"sequence " + std::to_string(i) + " of " + std::to_string(sessions.size()) +
                   ": " + prepared.error().message};
    }
  }
  spans_.clear();
  for (size_t i = 0; i < sessions.size(); ++i) {
    spans_.push_back(sessions[i]->BeginStep(tokens.subspan(i, 1)));
  }
  // All rows in one block: cutting them would read every weight more than once.
  const auto n_rows = std::max<int64_t>(kMinRowBlock, static_cast<int64_t>(spans_.size()));
  const Result<void> done = engine_.step().RunAll(spans_, n_rows);
  for (size_t i = 0; i < sessions.size(); ++i) {
    sessions[i]->EndStep(tokens.subspan(i, 1), done.has_value());
  }
  return done;
}

}  // namespace winnow::runtime
