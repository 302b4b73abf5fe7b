#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Whether all tokens of a prompt get logits (RowPolicy).
bool ScoresPrompts(const CompressionOptions& compression);

// Logits as they are computed. Row i holds the logits after token first + i of the call.
struct LogitRows {
  int64_t first = 0;
  std::span<const float> logits;  // [rows, vocabulary]
  // [rows] natural log of the probability of the token that follows each row in the call; one fewer
  // if the last token's row is included.
  std::span<const double> log_probabilities;
};

struct ScoreOptions {
  int64_t first = 0;  // first token to be scored; rows start at the token before it
  // Tokens that are read as a prompt; the others are decoded one by one. -1: all.
  int64_t n_prompt = -1;
  std::function<void(const LogitRows& rows)> on_rows = {};
  std::function<void()> on_prompt = {};            // the prompt was read and compressed
  std::function<bool(double done)> progress = {};  // share of the tokens, 0..1; false stops
};

// Appends tokens and reports the probability of each, given all before it. Without a method,
// reading tokens as a prompt or one by one gives the same, so all are read at once. Stopped:
// returns false; the session keeps the tokens that were decoded one by one, but none of a prompt
// that was stopped (and with a method nothing at all, see Session::Prefill). Errors: no room for
// all of them; those of Session::Prefill and Decode; rows of a prompt of which the method computes
// only some (RowPolicy::kKept). Requires: 0 <= first, n_prompt <= the number of tokens.
Result<bool> Score(Session& session, std::span<const TokenId> tokens, const ScoreOptions& options);

}  // namespace winnow::runtime
