#pragma once

#include <memory>
#include <vector>

#include "eval/run/workload.h"

namespace winnow::eval {

// Reading prompts and generating after them, with a clock: one sequence, or the largest static
// batch that a memory limit allows.
struct Timing {
  std::vector<TokenId> prompt;  // the sequences' begin at different places of it
  int64_t n_generate = 0;
  int64_t memory_limit = 0;  // bytes of model, buffers and caches; 0: none, one sequence
  int64_t run = 0;           // several runs of the same are told apart
};

// Scores "prefill_s", "decode_s", "total_s", "tokens_per_second" (generated tokens of all sequences
// over the whole time), "decode_tokens_per_second", "step_ms" (a token of every sequence),
// "cache_mib" (of one sequence, after the last token) and "sequences".
// A limit that does not hold one sequence is an error.
std::unique_ptr<Workload> MakeWorkload(Timing timing);

}  // namespace winnow::eval
