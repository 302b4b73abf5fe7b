#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "tokenizer/tokenizer.h"

namespace winnow::runtime {

// The defaults are llama.cpp's, so that users and scripts used to it get what they expect.
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
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // -inf bans
  uint64_t seed = 0;
  bool operator==(const SamplerConfig&) const = default;
};

// Calls visitor(name, value, help) for every parameter except the bias, in the order in which they
// act.
template <typename Config, typename Visitor>
void Visit(Config& config, Visitor&& visitor) {
  visitor("seed", config.seed, "start of the random sequence");
  visitor("repeat_last_n", config.repeat_last_n,
          "number of recent tokens the penalties apply to; 0: off, -1: the whole text");
  visitor("repeat_penalty", config.repeat_penalty,
          "divides positive logits of recent tokens and multiplies negative ones; 1: off");
  visitor("presence_penalty", config.presence_penalty, "taken from the logit of recent tokens");
  visitor("frequency_penalty", config.frequency_penalty,
          "taken from the logit of recent tokens once for each time they occur");
  visitor("top_k", config.top_k, "keep the k most likely tokens; 0: off");
  visitor("typical_p", config.typical_p,
          "locally typical sampling: keep tokens up to this probability; 1: off");
  visitor("top_p", config.top_p, "keep the most likely tokens up to this probability; 1: off");
  visitor("min_p", config.min_p,
          "keep tokens at least this likely, relative to the most likely one; 0: off");
  visitor("temperature", config.temperature, "flattens (> 1) or sharpens (< 1); 0: greedy");
}

// Picks tokens from logits: penalties, then top-k, typical, top-p, min-p, then temperature and a
// draw, the order of llama.cpp's default chain. Same seed, same logits, same tokens.
//
// Ties go to the lower token id. A NaN logit counts as -inf. Greedy sampling is the largest logit
// after bias and penalties; the filters, which never remove it except typical_p, are skipped.
class Sampler {
 public:
  // Errors: a value out of range or not finite (named), a bias for a token outside the vocabulary.
  static Result<Sampler> Make(const SamplerConfig& config, int64_t vocabulary);

  // Error: no token is left, because the bias bans all possible ones. Requires: logits.size() ==
  // vocabulary. Cost: O(vocabulary) plus sorting the candidates that pass top-k or min-p.
  Result<int32_t> Sample(std::span<const float> logits);
  // Tells the sampler about a token of the text (prompt or generated), for the penalties.
  void Accept(int32_t token);
  // Clears the text; the random sequence continues.
  void Reset();

 private:
  struct Candidate {
    int32_t token;
    float logit;
  };

  Sampler(const SamplerConfig& config, int64_t vocabulary);
  void ApplyBiasAndPenalties();
  int32_t Greedy() const;
  void CollectTopK();
  void KeepTypical();
  void KeepTopP();
  int32_t Draw();

  SamplerConfig config_;
  int64_t vocabulary_ = 0;
  Rng rng_{0};
  std::vector<int32_t> history_;  // ring buffer of the last repeat_last_n tokens, or the whole text
  size_t oldest_ = 0;             // index in the ring buffer once it is full
  // Scratch, reused so that a step allocates nothing.
  std::vector<float> logits_;
  std::vector<int32_t> recent_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
  std::vector<std::pair<double, size_t>> by_information_;
};

// Bans every token that ends generation (--ignore-eos).
void BanEndOfGeneration(const tokenizer::Tokenizer& tokenizer, SamplerConfig& config);

}  // namespace winnow::runtime
