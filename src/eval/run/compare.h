#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/metrics/kl_divergence.h"
#include "eval/run/equal_bytes.h"
#include "runtime/session/session.h"

namespace winnow::eval {

// The answer of one cache to one question.
struct Answer {
  std::string text;
  std::vector<runtime::TokenId> tokens;  // greedy, including the end token
  // Time from the first token read to the choice of the first token generated. Covers the prompt,
  // or only the question if the document was read before.
  double first_token_ms = 0;
  double tokens_per_second = 0;  // of the tokens after the first; 0 if there are none
  KlDivergence
      against_full;  // of next-token distributions, both caches fed with the full cache's answer
};

// The results of one method and budget on a prompt.
struct ComparedCache {
  std::string method;
  std::string budget;      // Candidate::budget
  double equal_bytes = 0;  // Candidate::equal_bytes
  double read_ms = 0;      // to read the prompt
  int64_t n_seen = 0;
  double kept = 0;  // entries per KV head after the prompt, the mean over layers and heads
  // After the prompt, as runtime::Session counts them.
  int64_t cache_bytes = 0;
  int64_t cache_bytes_with_lists = 0;
  int64_t cache_bytes_full_f16 = 0;
  runtime::CacheParts cache_parts;
  std::vector<Answer> answers;  // [question]
  KlDivergence against_full;    // of all answers
  // [layer][kv_head] state of each prompt token (report::TokenMap) before anything is generated;
  // empty unless CompareOptions::follow_tokens is set.
  std::vector<std::vector<std::string>> states;
};

// A prompt and the questions to ask after it was compressed. Each question goes to a copy of the
// session and is decoded like generated tokens, so that methods do not treat it as a prompt.
struct ComparedPrompt {
  std::vector<runtime::TokenId> tokens;
  std::vector<std::vector<runtime::TokenId>> questions;  // none: the answer continues the prompt
};

struct CompareOptions {
  int64_t max_tokens = 64;           // of an answer
  bool follow_tokens = false;        // fills ComparedCache::states
  std::function<void()> on_cache;    // called after each cache, the full cache first
  std::function<bool()> keep_going;  // false stops; asked after every token
};

// Runs the prompt with the full cache, then with each of `candidates`; all else comes from
// `session_options`. If stopped, returns the caches that are done. Errors: those of the sessions,
// prefixed with the candidate's name; an empty prompt.
Result<std::vector<ComparedCache>> Compare(runtime::Engine& engine,
                                           const runtime::SessionOptions& session_options,
                                           std::span<const Candidate> candidates,
                                           const ComparedPrompt& prompt,
                                           const CompareOptions& options);

}  // namespace winnow::eval
