#include "model/architecture.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

//   h = x + Wo·Attention(RoPE(Wq·n), RoPE(Wk·n), Wv·n)      with n = RmsNorm(x)
//   y = h + Wdown·(SiLU(Wgate·m) * Wup·m)                    with m = RmsNorm(h)
// Llama has no biases, but some derived models have.
Layer ReadLayer(TensorReader& tensors, int layer) {
  constexpr auto kBias = TensorReader::Bias::kOptional;
  return {.residual = Layer::Residual::kSequential,
          .attention_norm = tensors.ReadNorm(layer, "attn_norm"),
          .attention = {.qkv = tensors.QueryKeyValue(layer, kBias),
                        .q_norm = {},
                        .k_norm = {},
                        .output = tensors.AttentionOutput(layer, kBias)},
          .feed_forward_norm = tensors.ReadNorm(layer, "ffn_norm"),
          .feed_forward = tensors.GatedFeedForward(layer, kernels::Activation::kSilu, kBias)};
}

}  // namespace

// Llama 1 to 3.x and models of the same shape: Mistral 7B, SmolLM2, TinyLlama, Yi, LongChat.
// Converters permute the rows of q and k so that rotated pairs are adjacent.
const Architecture& Llama() {
  static constexpr Architecture kLlama = {
      .name = "llama", .norm = NormKind::kRms, .rope_interleaved = true, .read_layer = ReadLayer};
  return kLlama;
}

}  // namespace winnow::model
