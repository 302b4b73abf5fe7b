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
// them, while each keeps its own cache, method and budget. Sessions come and go between steps; one
// that has ended is left out of the next step. Prompts are read one after another, by
// Session::Prefill.
//
// A session gets what Session::Decode gives it, bit for bit where the products of so many rows are
// computed as those of one (CPU: up to 3 sequences with quantised weights); otherwise products
// differ by the rounding of a sum in another order. What the other sequences are makes no
// difference, and from 4 (float weights: 12) on not how many they are either.
//
// An exception (refused memory) leaves the sessions as they were, those with a method empty.
class Batch {
 public:
  // The engine outlives the batch.
  explicit Batch(Engine& engine) : engine_(engine) {}

  // Appends tokens[i] to sessions[i], whose logits() are then those of its next token. Errors: a
  // session refuses its token (no room, outside the vocabulary, the memory limit; says which
  // session): all are as before. Memory refused: sessions are as before, but those with a method
  // are empty.
  // Requires: as many tokens as sessions, of this engine, none twice.
  Result<void> Decode(std::span<Session* const> sessions, std::span<const TokenId> tokens);

  // The same, but what goes wrong with a session is its own matter: outcomes[i] says so, that
  // session is as before (with a method perhaps empty), and the others have their tokens. Requires:
  // as many outcomes as sessions.
  void DecodeEach(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                  std::span<Result<void>> outcomes);

 private:
  void Begin(Session& session, std::span<const TokenId> token);
  Result<void> Run();

  Engine& engine_;
  // Kept, so that a step allocates nothing.
  std::vector<model::TokenSpan> spans_;
  std::vector<Session*> begun_;                 // sessions of the spans
  std::vector<std::optional<Error>> failures_;  // [session]
};

}  // namespace winnow::runtime
