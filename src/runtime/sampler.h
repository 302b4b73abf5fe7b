#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"

namespace winnow::runtime {

// Defaults as llama.cpp's, so that fingers and scripts trained on it get what they expect.
struct SamplerConfig {
  double temperature = 0.8;  // <= 0: greedy
  int top_k = 40;            // <= 0: off
  double top_p = 0.95;       // 1: off
  double min_p = 0.05;       // 0: off
  double typical_p = 1.0;    // 1: off
  double repeat_penalty = 1.0;
  int repeat_last_n = 64;  // 0: off, -1: the whole text
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // -inf bans
  uint64_t seed = 0;
  bool operator==(const SamplerConfig&) const = default;
};

// Picks tokens from logits. Same seed, same logits, same tokens.
class Sampler {
 public:
  // Errors: a value out of range or not finite (named), a bias for a token outside the vocabulary.
  static Result<Sampler> Make(const SamplerConfig& config, int64_t vocabulary);

  int32_t Sample(std::span<const float> logits);
  // Tells the sampler about a token of the text (prompt or generated), for the penalties.
  void Accept(int32_t token);
  void Reset();

 private:
  Sampler(const SamplerConfig& config, int64_t vocabulary);
  SamplerConfig config_;
  int64_t vocabulary_ = 0;
  Rng rng_{0};
  std::vector<int32_t> history_;
};

}  // namespace winnow::runtime
