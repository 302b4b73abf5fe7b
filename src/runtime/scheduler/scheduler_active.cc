#include "runtime/scheduler/scheduler_active.h"

namespace winnow::runtime {

int64_t PrefillEntry::reserved() const {
  return sequence == nullptr ? 0 : sequence->job().request.n * bytes.steady + bytes.prefill;
}

int64_t ActiveRequests::n_choices() const {
  auto n = static_cast<int64_t>(running.size());
  for (const PrefillEntry& entry : in_prefill) {
    if (entry.sequence != nullptr) n += entry.sequence->job().request.n;
  }
  return n;
}

int64_t ActiveRequests::ReservedBytes() const {
  int64_t bytes = 0;
  for (const auto& sequence : running) bytes += sequence->reserved_bytes;
  for (const PrefillEntry& entry : in_prefill) bytes += entry.reserved();
  return bytes;
}

const Sequence* ActiveRequests::Find(const std::string& session) const {
  const auto uses = [&](const Sequence* sequence) {
    return sequence != nullptr && sequence->choice() == 0 && sequence->job().session == session;
  };
  for (const auto& sequence : running) {
    if (uses(sequence.get())) return sequence.get();
  }
  for (const PrefillEntry& entry : in_prefill) {
    if (uses(entry.sequence.get())) return entry.sequence.get();
  }
  return nullptr;
}

}  // namespace winnow::runtime
