#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "eval/metrics/statistics.h"
#include "runtime/session.h"

namespace winnow::eval {

// A text of any length scored in one pass: every token from what the session's method kept of all
// tokens before it. Token by token; with a prefill chunk, chunk by chunk. Without a method nothing
// is lost between tokens, and the text is read in blocks.
struct StreamPoint {
  int64_t n_tokens = 0;       // fed so far
  MeanEstimate nll;           // of all tokens scored so far, nats
  double recent_nll = 0;      // mean over those since the last point
  double recent_seconds = 0;  // time since the last point
};

struct StreamOptions {
  int64_t score_from = 1;  // the first token that counts (token 0 follows nothing)
  int64_t every = 1000;    // tokens between points, rounded up to whole chunks
  // At least every `every` tokens and at the end.
  std::function<void(const StreamPoint& point)> on_point;
  std::function<bool(double done)> progress;  // false stops
};

// Appends the next tokens of a text; false: there are none left.
using NextTokens = std::function<Result<bool>(std::vector<runtime::TokenId>& tokens)>;

// The first n_tokens of a text, of which no more are held at once than are fed at once.
// Errors: fewer than two tokens; nothing to score; those of the session and of `next`.
Result<StreamPoint> ScoreStream(runtime::Session& session, const NextTokens& next, int64_t n_tokens,
                                const StreamOptions& options);
Result<StreamPoint> ScoreStream(runtime::Session& session, std::span<const runtime::TokenId> tokens,
                                const StreamOptions& options);

}  // namespace winnow::eval
