#include "model/architecture.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

//   h = x + Wo·Attention(RoPE(q), RoPE(k), v)      with (q, k, v) = Wqkv·RmsNorm(x)
//   y = h + Wdown·(SiLU(gate) * up)                with (gate, up) = Wup·RmsNorm(h)
Layer ReadLayer(TensorReader& tensors, int layer) {
  constexpr auto kBias = TensorReader::Bias::kOptional;
  return {.residual = Layer::Residual::kSequential,
          .attention_norm = tensors.ReadNorm(layer, "attn_norm"),
          .attention = {.qkv = tensors.QueryKeyValue(layer, kBias),
                        .q_norm = {},
                        .k_norm = {},
                        .output = tensors.AttentionOutput(layer, kBias)},
          .feed_forward_norm = tensors.ReadNorm(layer, "ffn_norm"),
          .feed_forward = tensors.FusedGatedFeedForward(layer, kernels::Activation::kSilu, kBias)};
}

}  // namespace

// Phi-3, Phi-3.5, Phi-4: Llama with q, k and v in one matrix, gate and up in one matrix, and
// split-half rotation of the first rope.dimension_count dimensions. Long-context files carry two
// sets of frequency divisors.
const Architecture& Phi3() {
  static constexpr Architecture kPhi3 = {
      .name = "phi3", .norm = NormKind::kRms, .rope_interleaved = false, .read_layer = ReadLayer};
  return kPhi3;
}

}  // namespace winnow::model
