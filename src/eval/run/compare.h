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

// What one cache answered to one question.
struct Answer {
  std::string text;
  std::vector<runtime::TokenId> tokens;  // greedy; an ending token included
  // From the first token read to the choice of the first one generated: of the prompt, or, where
  // the document was read before, of the question.
  double first_token_ms = 0;
  double tokens_per_second = 0;  // of the tokens after the first; 0 where there are none
  KlDivergence against_full;     // next-token distributions, fed with the full cache's answer
};

// What one way of keeping the cache made of a prompt.
struct ComparedCache {
  std::string method;
  std::string budget;      // Candidate::budget
  double equal_bytes = 0;  // Candidate::equal_bytes
  double read_ms = 0;      // the prompt
  int64_t n_seen = 0;
  double kept = 0;  // entries per KV head after the prompt, the mean over layers and heads
  // After the prompt, as runtime::Session counts them.
  int64_t cache_bytes = 0;
  int64_t cache_bytes_with_lists = 0;
  int64_t cache_bytes_full_f16 = 0;
  runtime::CacheParts cache_parts;
  std::vector<Answer> answers;  // [question]
  KlDivergence against_full;    // of all answers
  // [layer][kv_head] what is left of each token of the prompt, before anything is generated
  // (report::TokenMap); empty unless asked for.
  std::vector<std::vector<std::string>> states;
};

// A prompt, and what is asked after it was compressed. Every question is asked of a copy, and read
// as generated tokens are: methods do not take it for a prompt.
struct ComparedPrompt {
  std::vector<runtime::TokenId> tokens;
  std::vector<std::vector<runtime::TokenId>> questions;  // none: the prompt is answered itself
};

struct CompareOptions {
  int64_t max_tokens = 64;           // of an answer
  bool follow_tokens = false;        // fills ComparedCache::states
  std::function<void()> on_cache;    // one is done; the full cache first
  std::function<bool()> keep_going;  // false stops; asked after every token
};

// The same prompt under the full cache, then under each of `candidates`; `session_options` says the
// rest. Those that are done if stopped. Errors: those of the sessions, named by method.
Result<std::vector<ComparedCache>> Compare(runtime::Engine& engine,
                                           const runtime::SessionOptions& session_options,
                                           std::span<const Candidate> candidates,
                                           const ComparedPrompt& prompt,
                                           const CompareOptions& options);

}  // namespace winnow::eval
