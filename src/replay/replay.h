#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "replay/recording.h"
#include "runtime/budget/compressor.h"

namespace winnow::replay {

struct ReplayOptions {
  runtime::CompressionOptions compression;    // must have a method
  std::function<bool(double done)> progress;  // return false to stop
};

struct ReplaySummary {
  bool stopped = false;
  int64_t budget = 0;        // slots per KV head; 0: none
  std::vector<double> kept;  // [layer], entries at the end, as the mean over the KV heads
};

// Runs a method on a recording, the way a model would: the prompt as one prefill, or in chunks of
// compression.prefill_chunk tokens, layer by layer, then one decode step for every other token, in
// a cache of floats. Writes a safetensors file, per layer l:
//   layers.{l}.kept   [n_kv_heads, max] int32, positions of the entries at the end, oldest first,
//                     padded with -1; max: entries of the longest head
//   layers.{l}.count  [n_kv_heads] int32
//   layers.{l}.k, .v  [n_kv_heads, max, dim] keys as they are stored and values, zeros after count
//   layers.{l}.out    [n_q_heads, n - n_prompt, dim] attention outputs of the decode steps
// n_kv_heads is that of the cache: n_q_heads if every query head keeps its own entries. Errors: the
// budget is missing or too small, the prompt exceeds the memory limit, a chunk is longer than
// capped distances allow, memory is refused, the disk fails.
Result<ReplaySummary> Replay(kernels::Backend& backend, Recording& recording,
                             const std::string& out_path, const ReplayOptions& options);

}  // namespace winnow::replay
