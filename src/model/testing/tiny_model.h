#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/testing/builder.h"

// For tests: small models with random weights, as GGUF files in memory.
namespace winnow::model::testing {

// Of one layer.
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
  std::vector<int> feed_forward_of_layer;  // or one width for each layer
  std::vector<TinyHeads> heads_of_layer;   // or heads for each layer
  // The same function with layers that are alike, of matrices in F32 without biases: every layer is
  // `feed_forward` wide, with zeros beyond its own width. Where heads differ it has `n_heads` query
  // heads with a KV head each, of key_dim and value_dim, with zeros or copies for what its own lack
  // (and needs a `rope_dims`).
  bool pad_layers = false;
  int rope_dims = 0;                            // 0: as the file format says, all
  std::vector<float> rope_base_of_layer;        // empty: the default
  std::vector<float> attention_scale_of_layer;  // the same
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

// The shapes their architectures have; two with forms have a name each: llama, qwen2, qwen3,
// falcon-7b, falcon-40b, phi3.
TinySpec MakeTinySpec(const std::string& form);

// Metadata and tensors of the model. The same spec and tensor name give the same weights, fused or
// not.
gguf::testing::Builder TinyBuilder(const TinySpec& spec);
std::shared_ptr<const gguf::File> TinyModel(const TinySpec& spec);
// A SentencePiece-style vocabulary of `n_tokens` made-up pieces.
void AddTinyTokenizer(gguf::testing::Builder& builder, int n_tokens);

}  // namespace winnow::model::testing
