#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace winnow {

// How the next token is chosen. The stages act in the order of the fields, which is the order of
// llama.cpp's default chain; the defaults are llama.cpp's. Calls that take a Sampling reject a
// value out of range and name it.
struct Sampling {
  // (token, bias): added to the token's logit; -infinity bans the token.
  std::vector<std::pair<int32_t, float>> logit_bias = {};

  int repeat_last_n = 64;        // the penalties cover this many last tokens; 0: none, -1: all
  double repeat_penalty = 1.0;   // divides their positive logits, multiplies negative ones; 1: off
  double presence_penalty = 0;   // subtracted from the logit of each of them; 0: off
  double frequency_penalty = 0;  // subtracted once per occurrence; 0: off

  int top_k = 40;          // keeps the k most likely tokens; 0: off
  double typical_p = 1.0;  // keeps the most locally typical tokens up to this probability; 1: off
  double top_p = 0.95;     // keeps the most likely tokens up to this cumulative probability; 1: off
  double min_p = 0.05;  // keeps tokens at least this likely relative to the most likely one; 0: off

  double temperature = 0.8;  // 0: greedy, always the most likely token
  uint64_t seed = 0;         // equal seeds give equal texts

  bool operator==(const Sampling&) const = default;
};

// A random sequence that continues from one response to the next (Model::NewSampler). With Sampling
// alone, every response starts at the seed again. A handle: copies share the sequence. Used by one
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

// Restricts a response to a JSON schema or a grammar (Model::NewJsonConstraint,
// NewGrammarConstraint). Every response starts at the beginning of the grammar. A handle that keeps
// the model alive. Thread-safe.
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
