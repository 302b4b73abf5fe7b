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

// Context of a plan, for traces. The cache is in the state before the plan.
struct PlanContext {
  const cache::Cache& cache;
  compression::Phase phase = compression::Phase::kPrefill;
  int64_t n_seen = 0;  // tokens of the sequence, including those of the call
};

// How a session's cache is compressed. At most one of size, ratio, memory_bytes and quality is set;
// methods that need a budget need one of them.
struct CompressionOptions {
  compression::MethodPtr method = {};  // null: nothing is evicted
  int64_t size = 0;                    // slots per KV head
  double ratio = 0;                    // slots as a share of the prompt, (0, 1]
  int64_t memory_bytes = 0;            // limit of the whole cache, at any time
  // Maximum KL divergence, nats per token (quality_search.h). Only Session::Prefill searches.
  double quality = 0;
  int64_t prefill_chunk = 0;  // tokens of a prompt read at a time; 0: all
  // Tokens that memory_bytes leaves room for: generated tokens, if the method lets the cache grow
  // in decode, and, in one layer, part of the next prompt; at most a quarter of the bytes for each.
  // Also the number of tokens that questions and responses may add before a prompt is compressed
  // again (BudgetPlan::Appends).
  int64_t reserve_tokens = 256;
  std::function<void(const cache::Plan& plan, const PlanContext& context)> on_plan = {};
  compression::OnErrorCurve on_error_curve = {};  // for methods that compute error curves

  // Errors: those of FindProblem.
  Result<void> Check() const;

  // Whether calls of this phase evict.
  bool Evicts(compression::Phase phase) const {
    return method != nullptr && method->traits().decisions.Evicts(phase);
  }
};

// Names of the fields of Compression as the user wrote them ("--kv-size", "kv_size").
struct CompressionFieldNames {
  std::string_view method = "`method`";
  std::string_view decode = "`decode`";
  std::string_view size = "`size`";
  std::string_view ratio = "`ratio`";
  std::string_view memory = "`memory_bytes`";
  std::string_view quality = "`quality`";  // empty: not available there
  std::string_view prefill_chunk = "`prefill_chunk`";
};

// What is wrong, and the name of the field; no name if it concerns several.
struct CompressionProblem {
  std::string_view field = {};
  std::string text = {};
};

// Checks the budget (missing where the method needs one, given where it has none, several at once,
// out of range, or below what the method protects) and the chunk.
std::optional<CompressionProblem> FindProblem(const CompressionOptions& options,
                                              const CompressionFieldNames& words = {});
Error ErrorFrom(const CompressionProblem& problem);

}  // namespace winnow::runtime
