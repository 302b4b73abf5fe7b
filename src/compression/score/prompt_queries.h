#pragma once

#include <cstddef>
#include <span>

#include "compression/method.h"

// The queries of a prompt before RoPE, for scores that use them.
namespace winnow::compression::score {

inline Needs NeedsPromptQueries() {
  Needs needs;
  needs.prompt_rows = {.which = attention::RowSpec::Which::kAll, .queries_before_rope = true};
  return needs;
}

// The query of a row of the call, before RoPE, of one query head: [key_dim].
inline std::span<const float> PromptQuery(const LayerCall& call, size_t row, int head) {
  const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
  const auto n_heads = static_cast<size_t>(call.n_q_heads);
  return std::span(call.rows->queries_before_rope)
      .subspan((row * n_heads + static_cast<size_t>(head)) * dim, dim);
}

}  // namespace winnow::compression::score
