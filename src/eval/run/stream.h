#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/statistics.h"
#include "runtime/session/session.h"

namespace winnow::eval {

// Scores a text of any length in one pass, each token given what the session's method kept of all
// tokens before it: token by token or, with a prefill chunk, chunk by chunk. Without a method
// nothing is lost between tokens, and the text is read in blocks.
struct StreamPoint {
  int64_t n_tokens = 0;       // fed so far
  MeanEstimate nll;           // of all tokens scored so far, nats
  double recent_nll = 0;      // mean over the tokens since the last point
  double recent_seconds = 0;  // time since the last point
};

struct StreamOptions {
  int64_t score_from = 1;  // the first token that is scored (token 0 has no predecessor)
  int64_t every = 1000;    // tokens between points, rounded up to whole chunks
  // Called at least every `every` tokens (rounded as above) and at the end.
  std::function<void(const StreamPoint& point)> on_point;
  std::function<bool(double done)> progress;  // false stops
};

// Reads a stream with a session that starts empty, of the runtime or of the public API.
struct StreamReader {
  int64_t n_at_once = 1;  // tokens
  // Appends tokens and returns the log-probability of each but the first: [tokens]. Error: that of
  // the session.
  std::function<Result<std::vector<double>>(std::span<const runtime::TokenId> tokens)> score;
  std::function<std::span<const float>()> logits;  // after the last token
};
// Tokens that are read at once: with a method, one or its prefill chunk; without one, a block,
// which loses nothing and ends where StreamOptions::every wants a point.
int64_t StreamChunk(bool has_method, int64_t prefill_chunk, int64_t every);
// Requires: the session outlives the reader.
StreamReader ReaderFrom(runtime::Session& session, int64_t every);

// Appends the next tokens of a text; false: there are none left.
using NextTokens = std::function<Result<bool>(std::vector<runtime::TokenId>& tokens)>;

// Scores the first n_tokens of a text, of which only a window of bounded size is held.
// Errors: fewer than two tokens; nothing to score; those of the reader and of `next`.
Result<StreamPoint> ScoreStream(const StreamReader& reader, const NextTokens& next,
                                int64_t n_tokens, const StreamOptions& options);
Result<StreamPoint> ScoreStream(const StreamReader& reader,
                                std::span<const runtime::TokenId> tokens,
                                const StreamOptions& options);

}  // namespace winnow::eval
