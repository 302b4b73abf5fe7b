#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "eval/run/workload.h"
#include "runtime/session.h"

// Methods compared at equal bytes: the same number of entries takes different numbers of bytes
// under different methods.
namespace winnow::eval {

// A method with its budget, one of several that are compared.
struct Candidate {
  runtime::CompressionOptions compression = {};
  std::string budget = {};  // "ratio 0.25"; empty where all have the same, and for those without
  // Above 0: the budget is chosen for every prompt, so that the cache takes this share of the full
  // one's bytes. `compression` then has some size that the method accepts.
  double equal_bytes = 0;

  std::string Name() const;  // "snapkv:window=16 ratio 0.25"; "full" without a method
};

// `options` with the largest size (slots per KV head) under which the cache, with its lists, takes
// no more than `share` of what `prompt` takes in f16 uncompressed, right after the prompt. What
// reading it takes on the way is not limited. Found by reading the prompt under a few sizes: a
// search that stops within 1 % below the share, or where the next larger size takes more. The
// method's smallest size where that is more already. nullopt: stopped by keep_going. Errors: those
// of the session. Requires: a method, 0 < share, no on_plan that must not see other sessions (it is
// not called).
Result<std::optional<runtime::SessionOptions>> AtEqualBytes(
    runtime::Engine& engine, const runtime::SessionOptions& options, double share,
    std::span<const TokenId> prompt, const std::function<bool()>& keep_going);

// What a work runs a prompt with: the place's options, at equal bytes where it asks for that.
Result<std::optional<runtime::SessionOptions>> OptionsFor(const RunContext& run_context,
                                                          std::span<const TokenId> prompt);

// Whether a cache of this share of the full f16 cache's bytes is larger than was asked for.
inline bool Exceeds(double share, double equal_bytes) {
  constexpr double kTolerance = 1.005;
  return equal_bytes > 0 && share > kTolerance * equal_bytes;
}

}  // namespace winnow::eval
