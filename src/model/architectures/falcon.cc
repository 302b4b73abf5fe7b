#include "model/architecture.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

//   y = x + Wo·Attention(RoPE(q), RoPE(k), v) + Wdown·GELU(Wup·m)
//   with (q, k, v) = Wqkv·n, n = LayerNorm(x); 7B: m = n, 40B: m = LayerNorm2(x)
Layer ReadLayer(TensorReader& tensors, int layer) {
  using Bias = TensorReader::Bias;
  const Norm norm = tensors.ReadNorm(layer, "attn_norm", Bias::kRequired);
  // 40B only: attn_norm_2 is the norm of attention, and attn_norm that of the feed-forward part.
  const Norm norm_2 = tensors.ReadNorm(layer, "attn_norm_2", Bias::kRequired, /*optional=*/true);
  return {
      .residual = Layer::Residual::kParallel,
      .attention_norm = norm_2 ? norm_2 : norm,
      .attention = {.qkv = tensors.QueryKeyValue(layer, Bias::kOptional),
                    .q_norm = {},
                    .k_norm = {},
                    .output = tensors.AttentionOutput(layer, Bias::kOptional)},
      .feed_forward_norm = norm_2 ? norm : Norm{},
      .feed_forward = tensors.PlainFeedForward(layer, kernels::Activation::kGelu, Bias::kOptional)};
}

}  // namespace

// Falcon 7B and 40B: LayerNorm with bias, GELU without a gate, attention and feed-forward in
// parallel, one (7B) or few (40B) KV heads, split-half rotation.
const Architecture& Falcon() {
  static constexpr Architecture kFalcon = {.name = "falcon",
                                           .norm = NormKind::kLayer,
                                           .rope_interleaved = false,
                                           .read_layer = ReadLayer};
  return kFalcon;
}

}  // namespace winnow::model
