#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace winnow {

// How the next token is picked. The defaults are llama.cpp's; they act in this order.
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

}  // namespace winnow
