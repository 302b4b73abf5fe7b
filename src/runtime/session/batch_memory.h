#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Maximum number of sequences of a static batch: more than any machine holds.
inline constexpr int64_t kMaxBatchSequences = int64_t{1} << 20;

// Tokens of each sequence of a static batch. Each prompt is read while the caches of the sequences
// before it exist already, then all sequences generate together.
struct BatchShape {
  int64_t n_prompt = 0;
  int64_t n_generate = 0;
  bool operator==(const BatchShape&) const = default;
};

// Maximum bytes of a static batch, without attention's working memory: up to 16 MiB per thread
// while a prompt is read with column sums.
struct BatchMemory {
  int64_t model_bytes = 0;   // all tensors of the file
  int64_t buffer_bytes = 0;  // of forward passes, and the logits every sequence keeps
  int64_t cache_bytes = 0;   // live entries and the methods' state, as --kv-memory counts them
  int64_t total() const { return model_bytes + buffer_bytes + cache_bytes; }
};

int64_t ModelBytes(const Engine& engine);

// Requires: 1 <= n_sequences <= kMaxBatchSequences. Errors: those of Session::Make and
// Session::Plan; the caches take 2^60 bytes or more.
Result<BatchMemory> PlanBatchMemory(Engine& engine, const SessionOptions& options,
                                    const BatchShape& shape, int64_t n_sequences);

// Maximum number of sequences whose total() is within the limit. Errors: as PlanBatchMemory; the
// limit is below the bytes of one sequence (says how many).
Result<int64_t> LargestBatch(Engine& engine, const SessionOptions& options, const BatchShape& shape,
                             int64_t limit_bytes);

}  // namespace winnow::runtime
