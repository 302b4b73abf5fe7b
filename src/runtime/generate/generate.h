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
  // Generation ends before the first of these; empty strings are ignored.
  std::vector<std::string> stop;
  const std::atomic<bool>* cancel = nullptr;  // checked after every token and during prefill
  // A second flag with the same effect: that of winnow::CancellationToken.
  const std::atomic<bool>* token = nullptr;
  TokenConstraint* constraint = nullptr;  // of the generated text, in its initial state

  // Called with text as it becomes final: whole characters, without stop strings.
  std::function<void(std::string_view text)> on_text;
  // Called for each token, with the text that became final with it; Session::logits() are those it
  // was chosen from. Return false to stop.
  std::function<bool(TokenId token, std::string_view text)> on_token = {};
  // Called with the share of the prefill that is done, 0..1.
  std::function<void(double done)> on_prefill;
  // Called once the prompt is in the cache.
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
  // Tokens decoded: one less than generated, as the first comes from the prefill.
  int64_t n_decode = 0;

  double prefill_tokens_per_second() const;  // 0 if nothing was done
  double decode_tokens_per_second() const;
};

struct Generated {
  std::string text;             // without the stop string
  std::vector<TokenId> tokens;  // an ending token included
  int64_t n_prompt = 0;
  int64_t n_reused = 0;  // prompt tokens found in the session
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
