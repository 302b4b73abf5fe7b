#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Advances several sessions of one engine by one forward pass: every weight is read once for all of
// them, while each keeps its own cache, method and budget. Sessions can join and leave between
// steps. Prompts are read by Prefill.
//
// A session gets the same result as from Session::Decode, bit for bit if products of that many rows
// are computed like those of one row (CPU: up to 3 sequences with quantised weights); otherwise
// products differ by rounding, because sums are taken in another order. The result does not depend
// on what the other sequences contain and, from 4 sequences (float weights: 12) on, not on their
// number either.
//
// An exception (refused memory) leaves the sessions as they were; those with a method are empty.
class Batch {
 public:
  // The engine must outlive the batch.
  explicit Batch(Engine& engine) : engine_(engine) {}

  // Appends tokens[i] to sessions[i], whose logits() are then those of its next token. Errors: a
  // session refuses its token (no room, outside the vocabulary, the memory limit; says which
  // session): all are as before. Out of memory: sessions are as before, but those with a method are
  // empty.
  // Requires: as many tokens as sessions, of this engine, none twice.
  Result<void> Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens);

  // The same, but sessions fail separately: outcomes[i] has the error of a session that failed,
  // which is as before (with a method perhaps empty); the others have their tokens. Requires: as
  // many outcomes as sessions.
  void DecodeEach(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                  std::span<Result<void>> outcomes);

 private:
  void Begin(Session& session, std::span<const TokenId> token);
  Result<void> Run();
  Result<void> End(std::span<const TokenId> token, Result<void> done);
  // An exception leaves the sessions that have begun and not ended as a step that fails.
  template <class Work>
  void RunOrAbandon(const Work& work);

  Engine& engine_;
  // Reused, so that a step allocates nothing.
  std::vector<model::TokenSpan> spans_;
  std::vector<Session*> begun_;                 // sessions that have not ended the step
  std::vector<std::optional<Error>> failures_;  // [session]
};

}  // namespace winnow::runtime
