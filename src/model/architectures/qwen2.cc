#include "model/architecture.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

//   h = x + Wo·Attention(RoPE(Wq·n + bq), RoPE(Wk·n + bk), Wv·n + bv)      with n = RmsNorm(x)
//   y = h + Wdown·(SiLU(Wgate·m) * Wup·m)                                  with m = RmsNorm(h)
Layer ReadLayer(TensorReader& tensors, int layer) {
  using Bias = TensorReader::Bias;
  return {
      .residual = Layer::Residual::kSequential,
      .attention_norm = tensors.ReadNorm(layer, "attn_norm"),
      .attention = {.qkv = tensors.QueryKeyValue(layer, Bias::kRequired),
                    .q_norm = {},
                    .k_norm = {},
                    .output = tensors.AttentionOutput(layer, Bias::kOptional)},
      .feed_forward_norm = tensors.ReadNorm(layer, "ffn_norm"),
      .feed_forward = tensors.GatedFeedForward(layer, kernels::Activation::kSilu, Bias::kOptional)};
}

}  // namespace

// Qwen2 and Qwen2.5: Llama with biases on q, k and v and split-half rotation.
const Architecture& Qwen2() {
  static constexpr Architecture kQwen2 = {
      .name = "qwen2", .norm = NormKind::kRms, .rope_interleaved = false, .read_layer = ReadLayer};
  return kQwen2;
}

}  // namespace winnow::model
