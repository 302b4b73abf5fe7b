#include "runtime/session/batch.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/check.h"

namespace winnow::runtime {
namespace {

// Minimum row block, so that buffers are kept from step to step.
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
  begun_.clear();
  Result<void> outcome;
  RunOrAbandon([&] {
    for (size_t i = 0; i < sessions.size(); ++i) Begin(*sessions[i], tokens.subspan(i, 1));
    const Result<void> done = Run();
    outcome = done;
    for (size_t i = sessions.size(); i-- > 0;) {
      const Result<void> ended = End(tokens.subspan(i, 1), done);
      if (outcome && !ended) outcome = ended;
    }
  });
  return outcome;
}

void Batch::DecodeEach(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                       std::span<Result<void>> outcomes) {
  WINNOW_CHECK(sessions.size() == tokens.size() && sessions.size() == outcomes.size());
  spans_.clear();
  begun_.clear();
  failures_.assign(sessions.size(), std::nullopt);
  RunOrAbandon([&] {
    for (size_t i = 0; i < sessions.size(); ++i) {
      WINNOW_CHECK(&sessions[i]->engine() == &engine_);
      outcomes[i] = sessions[i]->PrepareStep(tokens[i]);
      if (!outcomes[i]) continue;
      Begin(*sessions[i], tokens.subspan(i, 1));
      spans_.back().sequence.failure = &failures_[i];
    }
    const Result<void> done = Run();
    for (size_t i = sessions.size(); i-- > 0;) {
      if (!outcomes[i]) continue;
      if (!done) outcomes[i] = done.error();
      if (failures_[i]) outcomes[i] = *failures_[i];
      outcomes[i] = End(tokens.subspan(i, 1), outcomes[i]);
    }
  });
}

void Batch::Begin(Session& session, std::span<const TokenId> token) {
  begun_.push_back(&session);
  spans_.push_back(session.BeginStep(token));
}

// Of the session that was begun last and has not ended.
Result<void> Batch::End(std::span<const TokenId> token, Result<void> done) {
  Result<void> ended = begun_.back()->EndStep(token, std::move(done));
  begun_.pop_back();
  return ended;
}

template <class Work>
void Batch::RunOrAbandon(const Work& work) {
  try {
    work();
  } catch (const std::exception&) {
    while (!begun_.empty()) {
      Session* const session = begun_.back();
      begun_.pop_back();
      session->AbandonStep();
    }
    throw;
  }
}

Result<void> Batch::Run() {
  // All rows in one block: splitting them would read every weight more than once.
  const auto n_rows = std::max<int64_t>(kMinRowBlock, static_cast<int64_t>(spans_.size()));
  return engine_.step().RunAll(spans_, n_rows);
}

}  // namespace winnow::runtime
