#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Whether all tokens of a prompt have logits (RowPolicy).
bool ScoresPrompts(const CompressionOptions& compression);

// Logits as they are computed: row i are those after token first + i of the call.
struct LogitRows {
  int64_t first = 0;
  std::span<const float> logits;  // [rows, vocabulary]
  // [rows], of the call's token after each, natural; one fewer with the last token's row.
  std::span<const double> log_probabilities;
};

struct ScoreOptions {
  int64_t first = 0;      // the first token to be scored: rows come from the one before it on
  int64_t n_prompt = -1;  // tokens that a method gets as a prompt, the others one by one; -1: all
  std::function<void(const LogitRows& rows)> on_rows = {};
  std::function<void()> on_prompt = {};            // the prompt is read, and compressed
  std::function<bool(double done)> progress = {};  // share of the tokens, 0..1; false stops
};

// Appends tokens and tells how likely each was, given all before it. Without a method a prompt's
// tokens are no others, and all are read at once. Stopped: returns false; the session has the
// tokens that were read one by one, none (or nothing at all, Session::Prefill) within a prompt.
// Errors: no room for all of them; those of Session::Prefill and Decode; rows of a prompt of which
// the method computes only some (RowPolicy::kKept). Requires: 0 <= first, n_prompt <= the number of
// tokens.
Result<bool> Score(Session& session, std::span<const TokenId> tokens, const ScoreOptions& options);

}  // namespace winnow::runtime
