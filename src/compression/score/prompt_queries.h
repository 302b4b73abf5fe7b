#pragma once

#include <cstddef>
#include <span>

#include "compression/method.h"

// For scores made of a prompt's queries as they are before RoPE.
namespace winnow::compression::score {

inline Needs NeedsPromptQueries() {
  Needs needs;
  needs.prompt_rows = {.which = attention::RowSpec::Which::kAll, .queries_before_rope = true};
  return needs;
}

// [key_dim], of a query head; `row` counts the rows of the call.
inline std::span<const float> PromptQuery(const LayerCall& call, size_t row, int head) {
  const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
  const auto n_heads = static_cast<size_t>(call.n_q_heads);
  return std::span(call.rows->queries_before_rope)
      .subspan((row * n_heads + static_cast<size_t>(head)) * dim, dim);
}

}  // namespace winnow::compression::score
