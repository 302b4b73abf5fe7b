#include "eval/run/equal_bytes.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace winnow::eval {
namespace {

using runtime::Session;
using runtime::SessionOptions;

// Below the share by so little is as good as on it.
constexpr double kCloseEnough = 0.99;
// Of the search; each reads the prompt once.
constexpr int kMaxTrials = 12;

// Bytes after the prompt under one size, and those of a full f16 cache. nullopt: stopped.
struct Measured {
  double bytes = 0;
  double full_bytes = 0;
};
Result<std::optional<Measured>> Measure(runtime::Engine& engine, SessionOptions options,
                                        int64_t size, std::span<const TokenId> prompt,
                                        const std::function<bool()>& keep_going) {
  options.compression.size = size;
  options.compression.on_plan = {};
  options.on_projections = {};
  WINNOW_ASSIGN(const auto session, Session::Make(engine, options));
  Session::PrefillOptions prefill;
  prefill.progress = [&](double) { return !keep_going || keep_going(); };
  WINNOW_ASSIGN(const bool finished, session->Prefill(prompt, prefill));
  if (!finished) return std::optional<Measured>();
  return std::optional(Measured{static_cast<double>(session->cache_bytes_with_lists()),
                                static_cast<double>(session->cache_bytes_full_f16())});
}

// The size if every head kept as many entries, with lists of its own.
Result<int64_t> FirstGuess(runtime::Engine& engine, SessionOptions options, int64_t smallest,
                           double share, int64_t n_prompt) {
  constexpr double kHalfBytes = 2;
  options.compression.size = smallest;
  WINNOW_ASSIGN(const auto session, Session::Make(engine, options));
  const cache::Cache& cache = session->cache();
  const cache::CacheShape& shape = cache.config().shape;
  const double full = kHalfBytes * (shape.key_dim + shape.value_dim) / cache.config().n_copies;
  const auto own = static_cast<double>(cache.bytes_per_slot(0) + cache.state_bytes_per_slot() +
                                       cache.max_list_bytes_per_slot());
  return static_cast<int64_t>(share * static_cast<double>(n_prompt) * full / own);
}

}  // namespace

std::string Candidate::Name() const {
  if (!compression.method) return "full";
  return compression.method->traits().spec + (budget.empty() ? "" : " " + budget);
}

Result<std::optional<SessionOptions>> AtEqualBytes(runtime::Engine& engine,
                                                   const SessionOptions& options, double share,
                                                   std::span<const TokenId> prompt,
                                                   const std::function<bool()>& keep_going) {
  SessionOptions chosen = options;
  chosen.compression.ratio = 0;
  chosen.compression.memory_bytes = 0;
  const int64_t smallest = std::max<int64_t>(1, options.compression.method->traits().budget.min);
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  // Sizes known to fit and known to be too large.
  int64_t fits = smallest - 1;
  int64_t exceeds = std::max(n_prompt, smallest) + 1;
  WINNOW_ASSIGN(int64_t next, FirstGuess(engine, chosen, smallest, share, n_prompt));
  for (int trial = 0; trial < kMaxTrials && exceeds - fits > 1; ++trial) {
    next = std::clamp(next, fits + 1, exceeds - 1);
    WINNOW_ASSIGN(const auto measured, Measure(engine, chosen, next, prompt, keep_going));
    if (!measured) return std::optional<SessionOptions>();
    const double wanted = share * measured->full_bytes;
    const bool within = measured->bytes <= wanted;
    const auto size = static_cast<double>(next);
    (within ? fits : exceeds) = next;
    if (within && measured->bytes >= kCloseEnough * wanted) break;
    // Bytes grow about in proportion to the size; where that leads nowhere, halves.
    const auto proportional = static_cast<int64_t>(std::floor(size * wanted / measured->bytes));
    const bool new_size = proportional > fits && proportional < exceeds && trial < kMaxTrials / 2;
    next = new_size ? proportional : fits + (exceeds - fits) / 2;
  }
  chosen.compression.size = std::max(fits, smallest);
  return std::optional(std::move(chosen));
}

Result<std::optional<SessionOptions>> OptionsFor(const RunContext& run_context,
                                                 std::span<const TokenId> prompt) {
  if (run_context.equal_bytes <= 0 || !run_context.options.compression.method) {
    return std::optional(run_context.options);
  }
  return AtEqualBytes(run_context.engine, run_context.options, run_context.equal_bytes, prompt,
                      [&] { return run_context.KeepGoing(0); });
}

}  // namespace winnow::eval
