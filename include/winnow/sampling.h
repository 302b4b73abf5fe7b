#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace winnow {

// How the next token is picked. The defaults are llama.cpp's; they act in this order. What takes it
// refuses a value out of range, and names it.
struct Sampling {
  // Added to the logit of a token; -infinity bans it.
  std::vector<std::pair<int32_t, float>> logit_bias = {};

  int repeat_last_n = 64;  // tokens the penalties look back on; 0: off, -1: the whole text
  double repeat_penalty =
      1.0;  // divides positive logits of recent tokens, multiplies negative ones
  double presence_penalty = 0;   // taken from the logit of recent tokens
  double frequency_penalty = 0;  // taken once for each time they occur

  int top_k = 40;          // the k most likely tokens; 0: off
  double typical_p = 1.0;  // the tokens of most typical information, up to this probability; 1: off
  double top_p = 0.95;     // the most likely tokens up to this probability; 1: off
  double min_p = 0.05;     // tokens at least this likely relative to the most likely one; 0: off

  double temperature = 0.8;  // 0: greedy, always the most likely token
  uint64_t seed = 0;         // same seed, same text

  bool operator==(const Sampling&) const = default;
};

// Draws the tokens of several answers from one random sequence (Model::NewSampler); with Sampling
// alone each answer starts at the seed again. A handle: copies share the sequence. Used by one
// thread at a time.
class Sampler {
 public:
  Sampler() = default;  // none
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  friend class Model;
  friend class Session;
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Restricts answers to a JSON schema or a grammar (Model::NewJsonConstraint, NewGrammarConstraint).
// Each answer starts at its beginning. A handle. Thread-safe.
class Constraint {
 public:
  Constraint() = default;  // none
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  friend class Model;
  friend class Session;
  friend class Scheduler;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace winnow
