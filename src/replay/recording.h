#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "report/safetensors_reader.h"

namespace winnow::replay {

// Queries, keys and values of one text, recorded from a model in a safetensors file. Per layer l,
// float32:
//   layers.{l}.q      [n_q_heads, n, dim]   after RoPE
//   layers.{l}.k      [n_kv_heads, n, dim]  after RoPE
//   layers.{l}.v      [n_kv_heads, n, dim]
//   layers.{l}.q_pre, layers.{l}.k_pre      the same before RoPE; only for methods that need them
// Metadata: n_prompt (tokens of the prefill, the others are decode steps); with q_pre and k_pre
// rope_theta and rope_type ("norm": pairs (2i, 2i+1); "neox": pairs (i, i + dim/2)).
class Recording {
 public:
  enum class Kind { kQueries, kKeys, kValues };

  // `before_rope`: whether q_pre and k_pre are needed. Errors: reading the file; a tensor or
  // metadata that is missing or of the wrong shape or type (says which, and what was expected).
  static Result<Recording> Open(const std::string& path, bool before_rope);

  int n_layers() const { return n_layers_; }
  int n_q_heads() const { return n_q_heads_; }
  int n_kv_heads() const { return n_kv_heads_; }
  int dim() const { return dim_; }
  int64_t n_tokens() const { return n_tokens_; }
  int64_t n_prompt() const { return n_prompt_; }
  const model::RopeParameters& rope() const { return rope_; }

  // Tokens [first, first + n) of all heads: out [n, heads * dim]. `rotated`: from q and k instead
  // of q_pre and k_pre. Error: reading the file.
  Result<void> Read(Kind kind, bool rotated, int layer, int64_t first, int64_t n,
                    std::vector<float>& out);

 private:
  explicit Recording(report::SafetensorsReader reader) : reader_(std::move(reader)) {}
  Result<void> CheckTensors(bool before_rope);
  Result<void> CheckTensor(const std::string& name, int n_heads) const;
  Result<void> ReadMetadata(bool before_rope);

  report::SafetensorsReader reader_;
  int n_layers_ = 0;
  int n_q_heads_ = 0;
  int n_kv_heads_ = 0;
  int dim_ = 0;
  int64_t n_tokens_ = 0;
  int64_t n_prompt_ = 0;
  model::RopeParameters rope_;
  std::vector<float> head_;
};

}  // namespace winnow::replay
