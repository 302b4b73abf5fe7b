#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cache/cache.h"
#include "compression/method.h"

namespace winnow::runtime {

// Where a plan belongs, for traces. The cache is as it was before the plan.
struct PlanContext {
  const cache::Cache& cache;
  compression::Phase phase = compression::Phase::kPrefill;
  int64_t n_seen = 0;  // tokens of the sequence, those of the call included
};

// How a session's cache is compressed. At most one of size, ratio, memory_bytes and quality is set;
// methods that need a budget need one of them.
struct CompressionOptions {
  compression::MethodPtr method = {};  // null: nothing is evicted
  int64_t size = 0;                    // slots per KV head
  double ratio = 0;                    // slots as a share of the prompt, (0, 1]
  int64_t memory_bytes = 0;            // of the whole cache, at any moment
  double quality = 0;         // largest KL divergence, nats a token (quality_search.h); only
                              // Session::Prefill searches
  int64_t prefill_chunk = 0;  // tokens of a prompt taken at a time; 0: all of it
  // Room kept under memory_bytes: for generated tokens, where the method lets the cache grow while
  // generating, and in one layer for a part of the next prompt; a quarter of the bytes at most for
  // either. Also what questions and answers may add before a prompt is compressed again
  // (BudgetPlan::Appends).
  int64_t reserve_tokens = 256;
  std::function<void(const cache::Plan& plan, const PlanContext& context)> on_plan = {};
  compression::OnErrorCurve on_error_curve = {};  // of methods that compute them

  // Errors: those of FindProblem.
  Result<void> Check() const;

  // Whether calls of a phase evict.
  bool Evicts(compression::Phase phase) const {
    return method != nullptr && method->traits().decisions.Evicts(phase);
  }
};

// What the fields of Compression are called where a user wrote them ("--kv-size", "kv_size").
struct CompressionWords {
  std::string_view method = "`method`";
  std::string_view decode = "`decode`";
  std::string_view size = "`size`";
  std::string_view ratio = "`ratio`";
  std::string_view memory = "`memory_bytes`";
  std::string_view quality = "`quality`";  // empty: none can be asked for there
  std::string_view prefill_chunk = "`prefill_chunk`";
};

// What is wrong, and the word of the field it is in; no word where it is about several.
struct CompressionProblem {
  std::string_view field = {};
  std::string text = {};
};

// What is wrong with a budget: none where one is needed, one where none is, several, out of range
// or below what the method protects; or with the chunk.
std::optional<CompressionProblem> FindProblem(const CompressionOptions& options,
                                              const CompressionWords& words = {});
Error ErrorFrom(const CompressionProblem& problem);

}  // namespace winnow::runtime
