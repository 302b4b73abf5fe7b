#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// What every sequence of a static batch does: its prompt is read while the caches of those before
// it are there already, then all generate together.
struct BatchShape {
  int64_t n_prompt = 0;
  int64_t n_generate = 0;
  bool operator==(const BatchShape&) const = default;
};

// What a static batch takes at most. Attention's working memory, up to 16 MiB a thread while a
// prompt is read with column sums, is not in it.
struct BatchMemory {
  int64_t model_bytes = 0;   // all tensors of the file
  int64_t buffer_bytes = 0;  // of forward passes, and the logits every sequence keeps
  int64_t cache_bytes = 0;   // live entries and the methods' state, as --kv-memory counts them
  int64_t total() const { return model_bytes + buffer_bytes + cache_bytes; }
};

int64_t ModelBytes(const Engine& engine);

// Errors: those of Session::Make and Session::Plan.
Result<BatchMemory> PlanBatchMemory(Engine& engine, const SessionOptions& options,
                                    const BatchShape& shape, int64_t n_sequences);

// Most sequences that a limit on all of it allows. Errors: as PlanBatchMemory; the limit is below
// what one sequence needs (says what that is).
Result<int64_t> LargestBatch(Engine& engine, const SessionOptions& options, const BatchShape& shape,
                             int64_t limit_bytes);

}  // namespace winnow::runtime
