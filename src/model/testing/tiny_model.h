#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/testing/builder.h"

// For tests: small models with random weights, as GGUF files in memory.
namespace winnow::model::testing {

// Heads of one layer.
struct TinyHeads {
  int n_heads = 4;
  int n_kv_heads = 2;
  int key_dim = 16;
  int value_dim = 16;
};

struct TinySpec {
  std::string architecture = "llama";
  int n_layers = 3;
  int n_heads = 4;
  int n_kv_heads = 2;
  int embedding = 64;
  int key_dim = 16;
  int value_dim = 16;
  int feed_forward = 96;
  std::vector<int> feed_forward_of_layer;  // not empty: a width for each layer
  std::vector<TinyHeads> heads_of_layer;   // not empty: heads for each layer
  // Writes a model with equal layers that computes the same function, with F32 matrices and no
  // biases. Every layer is `feed_forward` wide, with zeros beyond its own width. With
  // heads_of_layer, it has `n_heads` query heads with a KV head each, of key_dim and value_dim;
  // zeros or copies fill the rest. Requires rope_dims then.
  bool pad_layers = false;
  int rope_dims = 0;                            // 0: not written, so all
  std::vector<float> rope_base_of_layer;        // empty: the default
  std::vector<float> attention_scale_of_layer;  // empty: the default
  int vocabulary = 70;
  int context = 128;
  gguf::TensorType type = gguf::TensorType::kF32;  // of the matrices; F32, F16, BF16, Q8_0 or Q4_0

  bool fused_qkv = false;
  bool qkv_bias = false;
  bool other_bias = false;          // on attn_output, ffn_gate, ffn_up, ffn_down
  bool head_norms = false;          // qwen3
  bool falcon = false;              // LayerNorm instead of RMS, no gate, no ffn_norm
  bool second_norm = false;         // falcon 40B
  bool fused_feed_forward = false;  // phi3
  bool tied_output = false;
  bool rope_freqs = false;
};

// The spec of an architecture; falcon has two forms. `form`: llama, qwen2, qwen3, falcon-7b,
// falcon-40b or phi3.
TinySpec MakeTinySpec(const std::string& form);

// Metadata and tensors of the model. Equal specs and tensor names give equal weights, fused or not.
gguf::testing::Builder TinyBuilder(const TinySpec& spec);
std::shared_ptr<const gguf::File> TinyModel(const TinySpec& spec);
// Adds a SentencePiece-style vocabulary of `n_tokens` made-up pieces.
void AddTinyTokenizer(gguf::testing::Builder& builder, int n_tokens);

}  // namespace winnow::model::testing
