#pragma once

#include <memory>
#include <vector>

#include "eval/run/workload.h"

namespace winnow::eval {

// Times prefill and generation: of one sequence, or of the largest static batch that a memory limit
// allows.
struct Timing {
  std::vector<TokenId> prompt;  // the sequences start at different places in it
  int64_t n_generate = 0;
  int64_t memory_limit = 0;  // bytes of model, buffers and caches; 0: no limit, one sequence
  int64_t run = 0;           // tells repeated runs apart
};

// Scores "prefill_s", "decode_s", "total_s", "tokens_per_second" (generated tokens of all sequences
// over the whole time), "decode_tokens_per_second", "step_ms" (a token of every sequence),
// "cache_mib" (of one sequence, after the last token) and "sequences".
// Error: the limit does not hold one sequence.
std::unique_ptr<Workload> MakeWorkload(Timing timing);

}  // namespace winnow::eval
