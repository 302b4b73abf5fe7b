#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace winnow::oracle {

// One file of data/: a small random model, a text, and llama.cpp's logits after each of its tokens.
// expect.py writes these files and documents the fields.
struct Case {
  std::string name;
  std::string model_path;
  std::string architecture;
  std::string weights;  // F32 .. IQ4_XS, or the name of a mixture
  std::string variant;
  int64_t context = 0;
  int64_t vocabulary = 0;
  std::vector<int32_t> tokens;
  std::vector<float> exact;  // [token, vocabulary], llama.cpp with all weights widened to F32
  std::vector<float> same;   // [token, vocabulary], llama.cpp on the file itself; empty for F32,
                             // F16 and BF16 weights
  // Distance of `same` from `exact`: the oracle's own rounding of activations.
  double own_relative_error = 0;
  double own_kld = 0;

  bool quantised() const { return !same.empty(); }

  static Result<Case> Read(const std::string& path);
};

// Names of the cases in `folder`, sorted; NAME stands for NAME.safetensors.
std::vector<std::string> CaseNames(const std::string& folder);

// Logits of the engine, [token, vocabulary]: a prefill of the first two thirds of the text, then
// token by token, so that both paths through the kernels are compared. F32 cache.
//   target  as EngineOptions: empty for the best instruction set, "reference" for the plain loops
Result<std::vector<float>> ComputeLogits(const Case& c, const std::string& target);

// How far logits [row, vocabulary] are from expected ones.
struct Distance {
  double relative_error = 0;  // norm of the difference / norm of the expected, all rows together
  double kld = 0;             // mean over the rows of KL(expected || logits), nats
  double max_difference = 0;  // of one logit
};
Distance Measure(const std::vector<float>& logits, const std::vector<float>& expected,
                 int64_t vocabulary);

}  // namespace winnow::oracle
