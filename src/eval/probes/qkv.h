#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/session/session.h"

namespace winnow::eval {

// Records the queries, keys and values that attention receives in a session. Holds them in memory
// until Clear.
class QkvRecorder {
 public:
  struct Options {
    bool queries = true;
    bool before_rope = true;
    bool after_rope = true;
  };
  QkvRecorder(runtime::Engine& engine, const Options& options);

  // For SessionOptions::on_projections; the recorder must outlive the session.
  std::function<void(const attention::Projections& projections)> Hook();

  int64_t n_tokens() const;  // number recorded in the first layer
  // [token, dim] of one head.
  std::vector<float> KeysBeforeRope(int layer, int kv_head) const;
  std::vector<float> Values(int layer, int kv_head) const;
  void Clear();

  // Writes a file for Recording (replay/recording.h), with the first n_prompt tokens as the prompt.
  // Leaves out q_pre and k_pre if the format cannot describe the model's RoPE: it knows only
  // rotation of all dimensions at unscaled frequencies. Errors: keys and values of different
  // dimensions; layers with different numbers of tokens (a method that drops hidden states); keys
  // that were not rotated; the disk.
  Result<void> Write(const std::string& path, int64_t n_prompt) const;
  bool CanDescribeRope() const;

 private:
  struct Layer {
    std::vector<float> q, k, v, q_pre, k_pre;  // [token, heads * dim]
  };
  void Take(const attention::Projections& projections);
  void Append(const kernels::Matrix& matrix, std::vector<float>& rows);

  runtime::Engine& engine_;
  Options options_;
  cache::CacheShape shape_;
  std::vector<Layer> layers_;
};

}  // namespace winnow::eval
