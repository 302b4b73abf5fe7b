#pragma once

#include <cstdint>

#include "cache/cache.h"
#include "kernels/ops.h"

namespace winnow::attention {

// The queries of one row block, whose entries were appended to the layer last.
struct Queries {
  kernels::Matrix
      q;  // [n_queries, n_heads * key_dim], rotated and transformed like the layer's keys
  kernels::Matrix out;                       // [n_queries, n_heads * value_dim]
  int n_heads = 0;                           // query heads
  float scale = 0;                           // of q·k before the softmax
  const kernels::RopeTable* rope = nullptr;  // used if keys are stored before RoPE
};

// A layer's attention over the cache, in the form the kernels take. `found` is filled if `taps`
// asks for anything.
inline kernels::Attention MakeAttention(const cache::Cache& cache, int layer,
                                        const Queries& queries, const kernels::TapSpec& taps = {},
                                        kernels::Taps* found = nullptr) {
  const cache::CacheConfig& config = cache.config();
  const cache::LayerShape shape = config.shape.layer(layer);
  return {.q = queries.q,
          .out = queries.out,
          .n_q_heads = queries.n_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .key_type = config.key_type,
          .value_type = config.value_type,
          .scale = queries.scale,
          .heads = cache.Heads(layer),
          .rope = cache.keys_rotated(layer) ? nullptr : queries.rope,
          .entries = cache.Entries(layer, queries.q.rows),
          .taps = taps,
          .found = found};
}

}  // namespace winnow::attention
