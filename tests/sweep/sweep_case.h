#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/tensor_type.h"
#include "kernels/ops.h"

// A random session. One number, the seed, determines everything about it.
namespace winnow::sweep {

struct Turn {
  enum class Start { kContinue, kReset, kTruncate, kFork };
  Start start = Start::kContinue;
  int n_prompt = 0;
  int n_generate = 0;
};

struct Case {
  uint64_t seed = 0;
  // The model.
  std::string form;
  int n_layers = 0;
  int n_kv_heads = 0;
  int dim = 0;
  gguf::TensorType weights = gguf::TensorType::kF32;
  // The session. An empty method means the full cache.
  std::string method;
  std::string decode;  // --kv-decode
  int64_t context = 0;
  kernels::TensorType key_type = kernels::TensorType::kF16;
  kernels::TensorType value_type = kernels::TensorType::kF16;
  int64_t size = 0;
  double ratio = 0;
  int64_t memory_bytes = 0;
  int64_t chunk = 0;
  int64_t row_block = 512;
  int64_t reserve_tokens = 256;
  int n_threads = 1;
  int other_threads = 0;  // above 0: run again with this many threads, expecting the same bits
  bool together = false;  // generates in a Batch with a fork of itself
  std::vector<Turn> turns;
};

// The case of a seed. Parameters of methods are drawn from the ranges they state
// (MethodEntry::parameters), so that a new method is covered without a change here.
Case MakeCase(uint64_t seed);

// The case in one line, for people.
std::string Describe(const Case& c);

}  // namespace winnow::sweep
