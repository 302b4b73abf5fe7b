#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/metrics/kl_divergence.h"
#include "eval/run/equal_bytes.h"
#include "runtime/session.h"

namespace winnow::eval {

// What one way of keeping the cache made of a prompt.
struct Answer {
  std::string method;
  std::string budget;      // Candidate::budget
  double equal_bytes = 0;  // Candidate::equal_bytes
  std::string text;
  std::vector<runtime::TokenId> tokens;  // greedy; an ending token included
  double first_token_ms = 0;             // prefill and the choice of the first token
  double tokens_per_second = 0;          // of the tokens after the first; 0 where there are none
  int64_t n_seen = 0;
  double kept = 0;  // entries per KV head after the prompt, the mean over layers and heads
  // After the prompt, as runtime::Session counts them.
  int64_t cache_bytes = 0;
  int64_t cache_bytes_with_lists = 0;
  int64_t cache_bytes_full_f16 = 0;
  runtime::CacheParts cache_parts;
  KlDivergence against_full;  // next-token distributions, fed with the full cache's answer
  // [layer][kv_head] what is left of each token of the prompt, before anything is generated
  // (report::TokenMap); empty unless asked for.
  std::vector<std::vector<std::string>> states;
};

struct CompareOptions {
  int64_t max_tokens = 64;                              // of an answer
  bool follow_tokens = false;                           // fills Answer::states
  std::function<void(const Answer& answer)> on_answer;  // as they come; the full cache's first
  std::function<bool()> keep_going;                     // false stops; asked after every token
};

// The same prompt under the full cache, then under each of `candidates`; `session_options` says the
// rest. The answers so far if stopped. Errors: those of the sessions, named by method.
Result<std::vector<Answer>> Compare(runtime::Engine& engine,
                                    const runtime::SessionOptions& session_options,
                                    std::span<const Candidate> candidates,
                                    std::span<const runtime::TokenId> prompt,
                                    const CompareOptions& options);

}  // namespace winnow::eval
