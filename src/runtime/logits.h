#pragma once

#include "base/result.h"
#include "runtime/session.h"

namespace winnow::runtime {

// Whether a token can be chosen by the session's logits. Error: some are NaN or +infinity; the
// message says after how many tokens, and what to do.
Result<void> CheckLogits(Session& session);

}  // namespace winnow::runtime
