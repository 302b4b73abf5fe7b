#pragma once

#include <cstdint>

#include "compression/method.h"

namespace winnow::compression::methods {

// The words of KVzip (arXiv:2505.23416), by which a model is to repeat its prompt; n_repeated
// tokens lead over from one part to the next.
inline ReplaySpec RepeatPrompt(int64_t chunk = ReplaySpec{}.chunk) {
  return {.text = "\n\nRepeat the previous context exactly.\n",
          .next_text = "\n\nRepeat the part of the previous context exactly, starting with",
          .n_repeated = 8,
          .chunk = chunk};
}

}  // namespace winnow::compression::methods
