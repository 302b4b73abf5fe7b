#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "eval/run/stream.h"
#include "eval/run/workload.h"

namespace winnow::eval {

// A text that can be read from its beginning any number of times.
struct LongText {
  std::function<NextTokens()> open;
  int64_t n_tokens = 0;
  uint64_t hash = 0;  // of these
};

// A part of a text whose tokens are scored, each given what the method kept of all tokens before
// it.
struct Window {
  enum class Mode {
    kStream,  // token by token from the first (chunk by chunk with a prefill chunk)
    kHalves,  // the first half is a prompt, the second is decoded, as in `winnow perplexity`
  };
  std::vector<TokenId> tokens;
  LongText text = {};  // kStream: instead of `tokens`, if they are too many to hold
  Mode mode = Mode::kStream;
  int64_t score_from = 1;     // kStream: the first token that is scored
  int64_t every = 0;          // kStream: tokens between points of a curve; 0: none
  bool against_full = false;  // kHalves: also compares with the full cache over the same tokens
};

// Scores "nll" (nats per token) and, against the full cache, "kld", "same_top", "p_difference";
// all weighted by tokens.
std::unique_ptr<Workload> MakeWorkload(Window window);

}  // namespace winnow::eval
