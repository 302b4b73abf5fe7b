#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/generate/constraint.h"
#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until the end of generation or a full context
  std::vector<std::string>
      stop;  // generation ends before the first of them; empty ones are ignored
  const std::atomic<bool>* cancel = nullptr;  // looked at after every token and during prefill
  const std::atomic<bool>* token = nullptr;   // the same, of another thread
  TokenConstraint* constraint = nullptr;      // of what is generated, at its beginning; null: none

  // Text as it becomes final: whole characters, stop strings decided.
  std::function<void(std::string_view text)> on_text;
  // Each token, with the text that became final with it; Session::logits() are those it was chosen
  // from. False stops.
  std::function<bool(TokenId token, std::string_view text)> on_token = {};
  // Share of the prefill done, 0..1.
  std::function<void(double done)> on_prefill;
  // Once the prompt is in the cache.
  std::function<void()> on_prompt = {};
};

enum class StopReason {
  kEndOfGeneration,  // the model ended its text
  kLimit,            // max_tokens
  kStopString,
  kContext,  // the session is full
  kCancelled,
};
// "eos", "limit", "stop_string", "context", "cancelled".
std::string_view ToString(StopReason reason);

struct GenerateTimings {
  double prefill_ms = 0;      // computing the part of the prompt that was not in the cache
  double first_token_ms = 0;  // from the call to the first token
  double decode_ms = 0;       // all later tokens, sampling included
  int64_t n_prefill = 0;      // tokens prefilled
  int64_t n_decode =
      0;  // tokens decoded: one less than generated, as the first comes from the prefill

  double prefill_tokens_per_second() const;  // 0 where nothing was done
  double decode_tokens_per_second() const;
};

struct Generated {
  std::string text;             // without the stop string
  std::vector<TokenId> tokens;  // an ending token included
  int64_t n_prompt = 0;
  int64_t n_reused = 0;  // of the prompt, found in the session
  StopReason stop_reason = StopReason::kLimit;
  GenerateTimings timings;
};

// Continues `prompt` (the whole text so far; what the session already holds of it is not computed
// again). The sampler's penalties see the prompt. Errors: an empty prompt, a prompt longer than the
// session's context (both lengths named), those of the session, logits that are not numbers, a
// constraint that allows no token or cannot go on.
Result<Generated> Generate(Session& session, Sampler& sampler, std::span<const TokenId> prompt,
                           const GenerateOptions& options);

}  // namespace winnow::runtime
