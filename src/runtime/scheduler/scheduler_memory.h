#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"

// What the scheduler counts against its memory limit.
namespace winnow::runtime {

// The bytes that a sequence reserves when it is admitted.
struct SequenceBytes {
  int64_t steady = 0;   // while it generates: cache, lists, logits, what the sampler keeps
  int64_t prefill = 0;  // on top, while its prompt is read: uncompressed entries, hidden states
  bool operator==(const SequenceBytes&) const = default;
};

// Bytes for appending n_prompt tokens to the session as it is and generating n_generate after them,
// with or without a constraint. Error: as Session::Plan.
Result<SequenceBytes> PlanSequence(const Session& session, int64_t n_prompt, int64_t n_generate,
                                   bool is_constrained = false);

// Bytes of a running session; never more than planned (asserted).
int64_t WorkingBytes(const Session& session, bool is_constrained = false);
// Bytes of an idle session.
int64_t IdleBytes(const Session& session);

// Upper bound for the bytes of a session restored from a file of file_bytes with n_tokens. `empty`:
// a session made with the file's options, without tokens yet.
int64_t MaxRestoredBytes(const Session& empty, int64_t n_tokens, int64_t file_bytes);

// Bytes of the buffers of steps that decode n_sequences and read a prompt in blocks of row_block
// rows. Attention's memory inside an operation is not counted (batch_memory.h).
int64_t StepBufferBytes(const Engine& engine, int64_t n_sequences, int64_t row_block);

// Whether a session can take n_prompt tokens more. Error: why not.
Result<void> CheckPromptFits(const Session& session, int64_t n_prompt);

// Maximum number of tokens that a request generates: max_tokens as far as the context allows; -1:
// to the end of the context.
int64_t TokensToGenerate(const Session& session, int64_t n_prompt, int64_t max_tokens);

// "NEEDED bytes with the model and its buffers, the limit is LIMIT".
std::string BytesAndLimit(int64_t needed, int64_t limit);

}  // namespace winnow::runtime
