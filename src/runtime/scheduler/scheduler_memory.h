#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"

// What the scheduler counts against its memory limit.
namespace winnow::runtime {

// What a sequence is admitted with.
struct SequenceBytes {
  int64_t steady = 0;   // while it generates: cache, lists, logits, what the sampler keeps
  int64_t prefill = 0;  // on top, while its prompt is read: uncompressed entries, hidden states
  bool operator==(const SequenceBytes&) const = default;
};

// Of a session as it is, for n_prompt tokens and n_generate after them, under a constraint or not.
// Error: as Session::Plan.
Result<SequenceBytes> PlanSequence(const Session& session, int64_t n_prompt, int64_t n_generate,
                                   bool is_constrained = false);

// Of a running session; never more than the plan (asserted).
int64_t WorkingBytes(const Session& session, bool is_constrained = false);
// Of a session that nobody uses.
int64_t IdleBytes(const Session& session);

// Of a session that a file of file_bytes with n_tokens becomes, at most. `empty`: made as the file
// says, without tokens yet.
int64_t MaxRestoredBytes(const Session& empty, int64_t n_tokens, int64_t file_bytes);

// Buffers of the steps that decode n_sequences and read a prompt in blocks of row_block rows.
// What attention needs inside an operation is not counted (batch_memory.h).
int64_t StepBufferBytes(const Engine& engine, int64_t n_sequences, int64_t row_block);

// Whether a session can take n_prompt tokens more. Error: why not.
Result<void> CheckPromptFits(const Session& session, int64_t n_prompt);

// How many tokens a request generates at most: what it asks for, as far as its context goes. -1: to
// the end of its context.
int64_t TokensToGenerate(const Session& session, int64_t n_prompt, int64_t max_tokens);

// "NEEDED bytes with the model and its buffers, the limit is LIMIT".
std::string BytesAndLimit(int64_t needed, int64_t limit);

}  // namespace winnow::runtime
