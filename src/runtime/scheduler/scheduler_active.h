#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/scheduler/scheduler_sequence.h"
#include "runtime/scheduler/scheduler_types.h"

namespace winnow::runtime {

// A request in prefill. Its sequence is null once it has ended while others that share the pass go
// on.
struct PrefillEntry {
  std::unique_ptr<Sequence> sequence = {};
  std::vector<TokenId> rest = {};  // of the prompt, to be read
  SequenceBytes bytes = {};        // steady: of each choice
  int64_t reserved() const;
};

// The requests that have started and not ended.
struct ActiveRequests {
  std::vector<std::unique_ptr<Sequence>> running = {};
  std::vector<PrefillEntry> in_prefill = {};  // in the order of the pass (Prefill)

  bool empty() const { return running.empty() && in_prefill.empty(); }
  int64_t n_choices() const;  // of requests in prefill too
  int64_t ReservedBytes() const;
  // The first choice of the request that uses a session; null: there is none.
  const Sequence* Find(const std::string& session) const;
};

}  // namespace winnow::runtime
