#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gguf/tensor_type.h"
#include "model/architecture.h"
#include "model/model.h"
#include "model/parts.h"
#include "model/tensor_reader.h"

namespace winnow::model {
namespace {

Result<void> CheckFinite(const gguf::Tensor& tensor) {
  const int64_t row_bytes = gguf::RowBytes(tensor.type, tensor.shape[0]);
  const int64_t n_rows = tensor.n_elements() / tensor.shape[0];
  std::vector<float> row(static_cast<size_t>(tensor.shape[0]));
  for (int64_t i = 0; i < n_rows; ++i) {
    kernels::Dequantize(
        tensor.type,
        tensor.bytes.subspan(static_cast<size_t>(i * row_bytes), static_cast<size_t>(row_bytes)),
        row);
    const auto bad =
        std::find_if_not(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
    if (bad != row.end()) {
      return Error{"model: tensor " + tensor.name + " holds " + std::to_string(*bad) + " at row " +
                   std::to_string(i) + ", column " + std::to_string(bad - row.begin())};
    }
  }
  return {};
}

Result<int64_t> ContextInUse(const Hyperparameters& h, int64_t wanted, Log& log) {
  if (wanted < 0 || wanted > kMaxContext) {
    return Error{.message = "model: a context of " + std::to_string(wanted) +
                            " tokens is out of range 1.." + std::to_string(kMaxContext),
                 .code = ErrorCode::kInvalid};
  }
  if (wanted > h.trained_context) {
    log.Warning("the context of " + std::to_string(wanted) + " tokens is longer than the " +
                std::to_string(h.trained_context) +
                " the model was trained on: quality may degrade beyond it");
  }
  return wanted == 0 ? h.trained_context : wanted;
}

void WarnAboutSlidingWindow(const Hyperparameters& h, int64_t context, Log& log) {
  const auto cuts = [&](const LayerSpec& layer) {
    return layer.sliding_window > 0 && layer.sliding_window < context;
  };
  const auto n = std::ranges::count_if(h.layers, cuts);
  if (n == 0) return;
  const LayerSpec& first = *std::ranges::find_if(h.layers, cuts);
  log.Warning("the model's sliding window of " + std::to_string(first.sliding_window) + " tokens" +
              (n < h.n_layers
                   ? " in " + std::to_string(n) + " of " + std::to_string(h.n_layers) + " layers"
                   : "") +
              " is not applied: every token attends to all earlier tokens");
}

Result<void> CheckFactors(const char* name, const std::vector<float>& factors) {
  for (const float factor : factors) {
    if (!(std::isfinite(factor) && factor > 0)) {
      return Error{"model: tensor " + std::string(name) + " holds " + std::to_string(factor) +
                   ", expected numbers above 0"};
    }
  }
  return {};
}

// Reads the divisors of the RoPE frequencies, if the file has any: one set, or one set each for
// short and long contexts.
Result<void> ReadFrequencyFactors(TensorReader& tensors, RopeParameters& rope) {
  const int64_t n_pairs = rope.n_rotated / 2;
  rope.frequency_factors = tensors.OptionalFloats("rope_freqs", n_pairs);
  WINNOW_TRY(CheckFactors("rope_freqs", rope.frequency_factors));
  const std::vector<float> for_short = tensors.OptionalFloats("rope_factors_short", n_pairs);
  WINNOW_TRY(CheckFactors("rope_factors_short", for_short));
  if (!for_short.empty()) rope.frequency_factors = for_short;
  rope.frequency_factors_long = tensors.OptionalFloats("rope_factors_long", n_pairs);
  return CheckFactors("rope_factors_long", rope.frequency_factors_long);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): whoever loads a model gives it the file
Result<std::unique_ptr<Model>> Model::Load(std::shared_ptr<const gguf::File> file,
                                           kernels::Backend& backend, const LoadOptions& options,
                                           Log& log) {
  ModelParts parts;
  WINNOW_ASSIGN(parts.hyperparameters, ReadHyperparameters(*file));
  Hyperparameters& h = parts.hyperparameters;
  const Architecture& architecture = *FindArchitecture(h.architecture);
  WINNOW_ASSIGN(parts.text_context, ContextInUse(h, options.context, log));
  const int64_t trained_beyond = std::max<int64_t>(0, h.trained_context - parts.text_context);
  parts.context = parts.text_context + std::min(options.spare_context, trained_beyond);
  WarnAboutSlidingWindow(h, parts.text_context, log);
  if (options.check_tensors) {
    for (const gguf::Tensor& tensor : file->tensors()) WINNOW_TRY(CheckFinite(tensor));
  }

  TensorReader tensors(file, backend, h);
  for (LayerSpec& layer : h.layers) WINNOW_TRY(ReadFrequencyFactors(tensors, layer.rope));
  parts.norm = architecture.norm;
  parts.embedding = tensors.Matrix("token_embd", h.embedding, h.vocabulary);
  for (int layer = 0; layer < h.n_layers; ++layer) {
    parts.layers.push_back(architecture.read_layer(tensors, layer));
  }
  parts.output_norm = tensors.OutputNorm(architecture);
  parts.output = tensors.Matrix("output", h.embedding, h.vocabulary, /*optional=*/true);
  if (parts.output == nullptr) parts.output = parts.embedding;
  parts.n_parameters = tensors.n_parameters();
  WINNOW_ASSIGN(parts.store, tensors.Finish());
  return std::make_unique<Model>(std::move(parts), backend);
}

}  // namespace winnow::model
