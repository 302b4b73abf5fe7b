#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/matmul/input_kernels.h"
#include "kernels/cpu/matmul/matmul.h"

namespace winnow::kernels::cpu {

// Products with many input rows ("tokens"): some weight rows are unpacked once to a tile with one
// row per lane, which is then multiplied with all tokens, in blocks of as many as fit in registers.

// The input in blocks of tokens. The first blocks have the target's full width, the rest have
// eight, four or fewer tokens. A block of T tokens that starts at token t begins at t * (elements
// per token) of every array. For each element (or group) in turn, it holds the values of its T
// tokens side by side.
struct PackedQuantized {
  int64_t rows = 0;  // tokens
  int64_t cols = 0;
  int8_t* q = nullptr;        // elements: four consecutive values
  float* scale = nullptr;     // per group of 32
  float* sum32 = nullptr;     // per group, as in QuantizedInput
  float* sum16 = nullptr;     // per half group
  int32_t* init32 = nullptr;  // -128 times the sum of q, per group
  int32_t* init16 = nullptr;  // the same per half group
};
struct PackedFloats {
  int64_t rows = 0;
  int64_t cols = 0;
  float* x = nullptr;
};

// Rows [first_row, first_row + n_rows) times tokens [first_token, first_token + n_tokens); both
// start at a multiple of the steps below.
struct TileRange {
  int64_t first_row = 0, n_rows = 0;
  int64_t first_token = 0, n_tokens = 0;
  // Weights that the thread is likely to process next; quantised ones are prefetched while it
  // multiplies.
  std::span<const std::byte> next = {};
};

// Products of quantised weights.
struct QuantizedTiles {
  int rows_per_tile = 0;
  int tokens_per_block = 0;
  int64_t (*scratch_bytes)(int64_t n_rows, int64_t cols);  // per thread, for n_rows
  // Packs the block of tokens that starts at `token` into the arrays of `to`.
  void (*pack)(const QuantizedInput& x, int64_t token, const PackedQuantized& to);
  // scratch: 64-byte aligned
  void (*multiply)(const MatMulJob& job, const TileRange& range, const PackedQuantized& x,
                   std::byte* scratch);
};
QuantizedTiles QuantizedTilesFor(int64_t target);

// Products of F32, F16 and BF16 weights; the packed input is one array.
struct FloatTiles {
  int rows_per_tile = 0;
  int tokens_per_block = 0;
  int64_t scratch_bytes = 0;  // per thread
  void (*pack)(const MatMulInput& x, int64_t token, const PackedFloats& to);
  void (*multiply)(const MatMulJob& job, const TileRange& range, const PackedFloats& x,
                   std::byte* scratch);
};
FloatTiles FloatTilesFor(int64_t target);
// Products of BF16 weights with the input rounded to BF16, which the CPU multiplies twice as fast
// as F32; sums are F32. Requires: Processor::multiplies_bf16. Their PackedFloats::x holds pairs of
// BF16 values in place of floats, so they need less memory.
FloatTiles Bf16TilesFor(int64_t target);

// Bytes and layout of the packed inputs.
int64_t PackedFloatsBytes(int64_t rows, int64_t cols);
int64_t PackedQuantizedBytes(int64_t rows, int64_t cols);
PackedQuantized PackedQuantizedAt(std::byte* memory, int64_t rows, int64_t cols);

// Tokens of the block that starts at `token` of n_tokens.
inline int64_t BlockTokens(int64_t token, int64_t n_tokens, int tokens_per_block) {
  const int64_t rest = n_tokens - token;
  if (rest >= tokens_per_block) return tokens_per_block;
  if (rest >= 8 && tokens_per_block > 8) return 8;
  return std::min<int64_t>(rest, 4);
}

// Calls function(std::integral_constant<int, T>) for T = tokens, a number that BlockTokens returns
// with tokens_per_block = kTokens.
template <int kTokens, class F>
void WithBlockTokens(int64_t tokens, const F& function) {
  switch (tokens) {
    case 1:
      return function(std::integral_constant<int, 1>());
    case 2:
      return function(std::integral_constant<int, 2>());
    case 3:
      return function(std::integral_constant<int, 3>());
    case 4:
      return function(std::integral_constant<int, 4>());
    case 8:
      return function(std::integral_constant < int, kTokens<8 ? kTokens : 8>());
    default:
      return function(std::integral_constant<int, kTokens>());
  }
}

}  // namespace winnow::kernels::cpu
