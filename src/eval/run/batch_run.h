#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/session/batch_memory.h"
#include "runtime/session/session.h"

// A static batch with timing, as `winnow bench -B` and `winnow eval throughput` run it.
namespace winnow::eval {

struct BatchTimes {
  bool stopped = false;         // by keep_going; the times cover the work done until then
  int64_t prefill_ns = 0;       // all prompts, one after the other
  int64_t decode_ns = 0;        // all steps; each decodes one token of every sequence
  int64_t longest_step_ns = 0;  // of those steps
  // Sums over all sequences at the end, as runtime::Session counts them.
  int64_t cache_bytes = 0;
  int64_t cache_bytes_with_lists = 0;
  double kept = 0;  // entries per KV head, the mean over sequences, layers and heads
};

// Prefills shape.n_prompt tokens in one session after the other, then decodes shape.n_generate
// tokens in all of them together, step by step. The tokens come from `tokens`, repeated: their
// values do not change the speed, and sampling is not measured. `keep_going` is called often with
// the share of the work done, and stops the run by returning false. May be empty. Errors: those of
// the sessions.
// Requires: sessions of one engine, at least one; `tokens` not empty.
Result<BatchTimes> RunBatch(std::span<const std::unique_ptr<runtime::Session>> sessions,
                            const runtime::BatchShape& shape,
                            std::span<const runtime::TokenId> tokens,
                            const std::function<bool(double done)>& keep_going);

// New sessions for RunBatch. Errors: those of Session::Make.
Result<std::vector<std::unique_ptr<runtime::Session>>> MakeSessions(
    runtime::Engine& engine, const runtime::SessionOptions& options, int64_t n_sequences);

}  // namespace winnow::eval
