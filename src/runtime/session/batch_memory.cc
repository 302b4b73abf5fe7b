#include "runtime/session/batch_memory.h"

#include <algorithm>
#include <memory>
#include <string>

#include "model/workspace.h"

namespace winnow::runtime {
namespace {

// More than any machine addresses. Larger products count as this many, so that sums of them do not
// overflow.
constexpr int64_t kMaxBytes = int64_t{1} << 60;

int64_t SaturatedBytes(int64_t n, int64_t bytes_each) {
  return bytes_each > kMaxBytes / n ? kMaxBytes : n * bytes_each;
}

BatchMemory Sum(const Engine& engine, const SessionOptions& options, const BatchShape& shape,
                const Reservation& reservation, int64_t n_sequences) {
  const model::Model& model = engine.model();
  const int64_t n_tokens = shape.n_prompt + shape.n_generate;
  const int64_t chunk = options.compression.prefill_chunk;
  const model::BufferUse use = {
      .n_tokens =
          std::max<int64_t>(1, chunk == 0 ? shape.n_prompt : std::min(chunk, shape.n_prompt)),
      .row_block = options.row_block,
      .n_sequences = n_sequences,
      .n_positions = std::clamp<int64_t>(n_tokens, 1, model.context())};
  const int64_t logits_bytes =
      model.hyperparameters().vocabulary * static_cast<int64_t>(sizeof(float));
  // Prompts are read one at a time, so only one takes the prefill surplus.
  return {.model_bytes = ModelBytes(engine),
          .buffer_bytes = model::BufferBytes(model, use) + n_sequences * logits_bytes,
          .cache_bytes = SaturatedBytes(n_sequences, reservation.steady_bytes) +
                         reservation.prefill_surplus_bytes};
}

Result<Reservation> PlanOne(Engine& engine, const SessionOptions& options,
                            const BatchShape& shape) {
  WINNOW_ASSIGN(const std::unique_ptr<Session> session, Session::Make(engine, options));
  return session->Plan(shape.n_prompt, shape.n_generate);
}

}  // namespace

int64_t ModelBytes(const Engine& engine) {
  int64_t bytes = 0;
  for (const gguf::Tensor& tensor : engine.file().tensors()) {
    bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  return bytes;
}

Result<BatchMemory> PlanBatchMemory(Engine& engine, const SessionOptions& options,
                                    const BatchShape& shape, int64_t n_sequences) {
  WINNOW_ASSIGN(const Reservation reservation, PlanOne(engine, options, shape));
  const BatchMemory memory = Sum(engine, options, shape, reservation, n_sequences);
  if (memory.cache_bytes < kMaxBytes) return memory;
  return Error{.message = "batch: the caches of " + std::to_string(n_sequences) + " sequences of " +
                          std::to_string(shape.n_prompt + shape.n_generate) +
                          " tokens take 2^60 bytes or more",
               .code = ErrorCode::kTooLarge};
}

Result<int64_t> LargestBatch(Engine& engine, const SessionOptions& options, const BatchShape& shape,
                             int64_t limit_bytes) {
  WINNOW_ASSIGN(const Reservation reservation, PlanOne(engine, options, shape));
  const auto bytes = [&](int64_t n) { return Sum(engine, options, shape, reservation, n).total(); };
  if (bytes(1) > limit_bytes) {
    return Error{"memory limit: one sequence of " + std::to_string(shape.n_prompt) + "+" +
                 std::to_string(shape.n_generate) + " tokens needs " + std::to_string(bytes(1)) +
                 " bytes with the model, " + std::to_string(limit_bytes) + " are allowed"};
  }
  int64_t fits = 1;
  int64_t too_many = kMaxBatchSequences + 1;  // bounds the search if a sequence takes no bytes
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    (bytes(middle) <= limit_bytes ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace winnow::runtime
