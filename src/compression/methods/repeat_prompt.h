#pragma once

#include <cstdint>

#include "compression/method.h"

namespace winnow::compression::methods {

// The instructions of KVzip (arXiv:2505.23416) that ask a model to repeat its prompt. Each later
// part starts with the n_repeated tokens before it.
inline ReplaySpec RepeatPrompt(int64_t chunk = ReplaySpec{}.chunk) {
  return {.text = "\n\nRepeat the previous context exactly.\n",
          .next_text = "\n\nRepeat the part of the previous context exactly, starting with",
          .n_repeated = 8,
          .chunk = chunk};
}

}  // namespace winnow::compression::methods
