#include "runtime/scheduler/scheduler_memory.h"

#include <algorithm>
#include <string>

#include "model/workspace.h"

namespace winnow::runtime {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kPageBytes = 4096;

int64_t LogitBytes(const Session& session) {
  return session.engine().model().hyperparameters().vocabulary * kFloatBytes;
}

// A sampler holds a copy of the logits, and candidates of twice the size. A constraint adds a
// masked copy of the logits.
int64_t SamplerBytes(const Session& session, bool is_constrained) {
  return (is_constrained ? 4 : 3) * LogitBytes(session);
}

// The keys and the values of each head start and end in pages of their own: up to one page more for
// each.
int64_t PageBytes(const Session& session) {
  return 2 * kPageBytes * session.cache().config().shape.n_kv_heads_in_all();
}

}  // namespace

Result<SequenceBytes> PlanSequence(const Session& session, int64_t n_prompt, int64_t n_generate,
                                   bool is_constrained) {
  WINNOW_ASSIGN(const Reservation reservation, session.Plan(n_prompt, n_generate));
  const cache::Cache& cache = session.cache();
  const model::Hyperparameters& h = session.engine().model().hyperparameters();
  const int64_t n_tokens = session.n_tokens() + n_prompt + n_generate;
  SequenceBytes bytes;
  bytes.steady = reservation.steady_bytes + reservation.list_bytes + LogitBytes(session) +
                 SamplerBytes(session, is_constrained) + PageBytes(session) +
                 n_tokens * static_cast<int64_t>(sizeof(TokenId));
  // The entries of the surplus are in lists too if something was evicted before; a list can be
  // allocated for an eighth more entries than it has (cache/index/growth.h).
  const int64_t n_rows =
      reservation.prefill_surplus_bytes / std::max<int64_t>(1, cache.bytes_per_slot(0));
  const int64_t chunk = session.compression().prefill_chunk;
  const int64_t n_call = chunk == 0 ? n_prompt : std::min(chunk, n_prompt);
  bytes.prefill = reservation.prefill_surplus_bytes +
                  (n_rows + n_rows / 8) * cache.max_list_bytes_per_slot() +
                  n_call * h.embedding * kFloatBytes;
  return bytes;
}

int64_t IdleBytes(const Session& session) {
  return session.cache_bytes_with_lists() + LogitBytes(session) + PageBytes(session) +
         session.n_tokens() * static_cast<int64_t>(sizeof(TokenId));
}

// The file contains everything that the session will hold, each number in at least as many bytes
// (cache/snapshot.cc), except: the logits, which it may lack; the spare capacity of a head's lists
// (cache/index/growth.h); and the counts of shared rows.
int64_t MaxRestoredBytes(const Session& empty, int64_t n_tokens, int64_t file_bytes) {
  constexpr int64_t kEmptyBytes = 2 * 48 * sizeof(uint16_t);
  // Per 65536 positions (cache/index/position_list.h), doubled for growth.
  constexpr int64_t kHighPartBytes = 16;
  constexpr int64_t kCountBytes = sizeof(int32_t);
  const cache::CacheConfig& config = empty.cache().config();
  const int64_t lists =
      config.shape.n_kv_heads_in_all() * (kEmptyBytes + kHighPartBytes * (1 + n_tokens / 65536));
  int64_t counts = 0;
  if (config.storage.shared_rows) {
    int64_t row_bytes = empty.cache().bytes_per_slot(0);
    for (int layer = 1; layer < config.shape.n_layers; ++layer) {
      row_bytes = std::min(row_bytes, empty.cache().bytes_per_slot(layer));
    }
    counts = file_bytes / std::max<int64_t>(1, row_bytes) * kCountBytes;
  }
  return file_bytes + lists + counts + LogitBytes(empty) + PageBytes(empty);
}

int64_t WorkingBytes(const Session& session, bool is_constrained) {
  return IdleBytes(session) + SamplerBytes(session, is_constrained);
}

int64_t StepBufferBytes(const Engine& engine, int64_t n_sequences, int64_t row_block) {
  const model::Model& model = engine.model();
  const int64_t decode = model::BufferBytes(model, {.n_tokens = 1,
                                                    .row_block = row_block,
                                                    .n_sequences = n_sequences,
                                                    .n_positions = model.context()});
  // Both share one position table, counted above, and hidden states are counted with their prompt.
  const int64_t prefill = model::BufferBytes(
      model, {.n_tokens = row_block, .row_block = row_block, .n_sequences = 1, .n_positions = 1});
  return decode + prefill;
}

std::string BytesAndLimit(int64_t needed, int64_t limit) {
  return std::to_string(needed) + " bytes with the model and its buffers, the limit is " +
         std::to_string(limit);
}

Result<void> CheckPromptFits(const Session& session, int64_t n_prompt) {
  if (n_prompt <= session.capacity() - session.n_tokens()) return session.CheckRoom(n_prompt);
  std::string message = "the prompt is " + std::to_string(n_prompt) + " tokens";
  if (session.n_tokens() > 0) {
    message += " after " + std::to_string(session.n_tokens()) + " of its session";
  }
  return Error{message + ", the context holds " + std::to_string(session.capacity())};
}

int64_t TokensToGenerate(const Session& session, int64_t n_prompt, int64_t max_tokens) {
  const int64_t context = session.cache().capacity();
  const int64_t n_after = session.n_tokens() + n_prompt;
  // An unlimited text ends after another context length.
  int64_t room = session.capacity() > context ? context : context - n_after;
  room = std::max<int64_t>(0, room);
  // The last token is chosen but not read, so it needs no room.
  if (session.capacity() <= context) ++room;
  return max_tokens < 0 ? room : std::min(max_tokens, room);
}

}  // namespace winnow::runtime
