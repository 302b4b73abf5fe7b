#include "model/architecture.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

//   h = x + Wo·Attention(RoPE(q), RoPE(k), Wv·n)    with n = RmsNorm(x), and for each head
//                                                   q = RmsNorm(Wq·n), k = RmsNorm(Wk·n)
//   y = h + Wdown·(SiLU(Wgate·m) * Wup·m)           with m = RmsNorm(h)
Layer ReadLayer(TensorReader& tensors, int layer) {
  constexpr auto kBias = TensorReader::Bias::kOptional;
  return {.residual = Layer::Residual::kSequential,
          .attention_norm = tensors.ReadNorm(layer, "attn_norm"),
          .attention = {.qkv = tensors.QueryKeyValue(layer, kBias),
                        .q_norm = tensors.HeadNorm(layer, "attn_q_norm"),
                        .k_norm = tensors.HeadNorm(layer, "attn_k_norm"),
                        .output = tensors.AttentionOutput(layer, kBias)},
          .feed_forward_norm = tensors.ReadNorm(layer, "ffn_norm"),
          .feed_forward = tensors.GatedFeedForward(layer, kernels::Activation::kSilu, kBias)};
}

}  // namespace

// Qwen3: Llama with an RMS norm of every query and key head before RoPE, and with split-half
// rotation. The size of a head comes from attention.key_length and need not be embedding / heads.
const Architecture& Qwen3() {
  static constexpr Architecture kQwen3 = {
      .name = "qwen3", .norm = NormKind::kRms, .rope_interleaved = false, .read_layer = ReadLayer};
  return kQwen3;
}

}  // namespace winnow::model
