#include "runtime/session/batch.h"

#include <algorithm>
#include <string>

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
  for (size_t i = 0; i < sessions.size(); ++i) Begin(*sessions[i], tokens.subspan(i, 1));
  const Result<void> done = Run();
  Result<void> outcome = done;
  for (size_t i = 0; i < sessions.size(); ++i) {
    const Result<void> ended = sessions[i]->EndStep(tokens.subspan(i, 1), done);
    if (outcome && !ended) outcome = ended;
  }
  return outcome;
}

void Batch::DecodeEach(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                       std::span<Result<void>> outcomes) {
  WINNOW_CHECK(sessions.size() == tokens.size() && sessions.size() == outcomes.size());
  spans_.clear();
  begun_.clear();
  failures_.assign(sessions.size(), std::nullopt);
  for (size_t i = 0; i < sessions.size(); ++i) {
    WINNOW_CHECK(&sessions[i]->engine() == &engine_);
    outcomes[i] = sessions[i]->PrepareStep(tokens[i]);
    if (!outcomes[i]) continue;
    Begin(*sessions[i], tokens.subspan(i, 1));
    spans_.back().sequence.failure = &failures_[i];
  }
  const Result<void> done = Run();
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (!outcomes[i]) continue;
    if (!done) outcomes[i] = done.error();
    if (failures_[i]) outcomes[i] = *failures_[i];
    outcomes[i] = sessions[i]->EndStep(tokens.subspan(i, 1), outcomes[i]);
  }
}

void Batch::Begin(Session& session, std::span<const TokenId> token) {
  begun_.push_back(&session);
  spans_.push_back(session.BeginStep(token));
}

Result<void> Batch::Run() {
  // All rows in one block: splitting them would read every weight more than once.
  const auto n_rows = std::max<int64_t>(kMinRowBlock, static_cast<int64_t>(spans_.size()));
  // An exception leaves the sessions as a step that fails.
  struct Abandon {
    explicit Abandon(std::vector<Session*>& sessions) : sessions_(sessions) {}
    ~Abandon() {
      for (Session* const session : sessions_) session->AbandonStep();
    }
    std::vector<Session*>& sessions_;
  };
  const Abandon abandon(begun_);
  Result<void> done = engine_.step().RunAll(spans_, n_rows);
  begun_.clear();
  return done;
}

}  // namespace winnow::runtime
