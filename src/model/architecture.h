#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/ops.h"

// The parts of a decoder layer. An architecture states which parts it has and which tensors fill
// them; layer_runner.cc runs every architecture.
namespace winnow::model {

class TensorReader;

enum class NormKind { kRms, kLayer };

// weight [1, E]; bias [1, E] or empty. An absent norm has an empty weight.
struct Norm {
  kernels::Matrix weight;
  kernels::Matrix bias;

  explicit operator bool() const { return !weight.empty(); }
};

// One weight matrix, or several that share an input and write their outputs side by side.
struct Product {
  struct Piece {
    const kernels::Weight* weight = nullptr;
    kernels::Matrix bias;  // [1, weight rows] or empty
  };
  std::array<Piece, 3> pieces;
  int n_pieces = 0;

  std::span<const Piece> all() const { return {pieces.data(), static_cast<size_t>(n_pieces)}; }
};

struct AttentionPart {
  Product qkv;             // output: queries of all heads, then keys, then values of all KV heads
  kernels::Matrix q_norm;  // [1, key_dim], RMS of every query head before RoPE; or empty
  kernels::Matrix k_norm;  // the same for every key head
  Product output;
};

struct FeedForwardPart {
  Product input;       // output: gate, then up [2F]; not gated: up alone [F]
  bool gated = false;  // activation(gate) * up, otherwise activation(up)
  kernels::Activation activation = kernels::Activation::kSilu;
  Product output;
  int64_t width = 0;  // F
};

struct Layer {
  // Sequential: x += attention(norm(x)), then x += feed_forward(feed_forward_norm(x)).
  // Parallel:   x += attention(norm(x)) + feed_forward(feed_forward_norm(x)), of the same x.
  enum class Residual { kSequential, kParallel };
  Residual residual = Residual::kSequential;
  Norm attention_norm;
  AttentionPart attention;
  Norm feed_forward_norm;
  FeedForwardPart feed_forward;
};

// A decoder-only architecture; `name` as in GGUF files.
struct Architecture {
  std::string_view name;
  NormKind norm = NormKind::kRms;  // of the layers and the output
  bool rope_interleaved = false;   // rotated pairs are (2i, 2i+1), otherwise (i, i + n_rotated/2)
  // Takes the tensors of one layer. The reader remembers errors: a missing tensor or a wrong shape.
  Layer (*read_layer)(TensorReader& tensors, int layer) = nullptr;
};

const Architecture& Llama();
const Architecture& Qwen2();
const Architecture& Qwen3();
const Architecture& Falcon();
const Architecture& Phi3();

// Null if not supported.
const Architecture* FindArchitecture(std::string_view name);

}  // namespace winnow::model
