#pragma once

#include <cstdint>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// For benchmarks: extends a session's cache by appending the entries of its first n tokens once
// more, with unchanged keys. There are no logits until the next call. Requires: no compression
// method, n <= n_tokens(). Error: no room.
Result<void> RepeatEntries(Session& session, int64_t n);

}  // namespace winnow::runtime
