#include "model/tensor_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace winnow::model {
namespace {

// Vectors start on cache lines.
constexpr int64_t kVectorAlignment = 16;  // floats

int64_t AlignedSize(int64_t n) {
  return (n + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
}

std::string LayerName(int layer, std::string_view name) {
  return "blk." + std::to_string(layer) + "." + std::string(name);
}

std::string ShapeText(const gguf::Tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.n_dims; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[static_cast<size_t>(i)]);
  }
  return text + "]";
}

std::string ShapeText(int64_t in, int64_t out) {
  return "[" + std::to_string(in) + (out > 1 ? ", " + std::to_string(out) : "") + "]";
}

bool HasShape(const gguf::Tensor& tensor, int64_t in, int64_t out) {
  return tensor.shape[0] == in && tensor.shape[1] == out && tensor.shape[2] == 1 &&
         tensor.shape[3] == 1;
}

// Tensors that some converters write, but whose values the model computes itself.
bool IsIgnorable(std::string_view name) {
  return name.ends_with(".attn_rot_embd.weight") || name.ends_with(".rotary_emb.inv_freq") ||
         name.ends_with(".attn.masked_bias");
}

}  // namespace

TensorReader::TensorReader(std::shared_ptr<const gguf::File> file, kernels::Backend& backend,
                           const Hyperparameters& hyperparameters)
    : file_(std::move(file)),
      backend_(backend),
      hyperparameters_(hyperparameters),
      taken_(file_->tensors().size()) {
  int64_t n_floats = 0;
  for (const gguf::Tensor& tensor : file_->tensors()) {
    if (tensor.n_elements() == tensor.shape[0]) n_floats += AlignedSize(tensor.shape[0]);
  }
  if (n_floats == 0) return;
  auto vectors = backend_.Allocate(n_floats * static_cast<int64_t>(sizeof(float)));
  if (vectors) {
    store_.vectors = std::move(vectors).value();
  } else {
    Fail(vectors.error().message);
  }
}

void TensorReader::Fail(std::string message) {
  if (!error_) error_ = Error{"model: " + std::move(message)};
}

bool TensorReader::Has(const std::string& name) const {
  return file_->FindTensor(name + ".weight") != nullptr;
}

const gguf::Tensor* TensorReader::Take(const std::string& name, int64_t in, int64_t out,
                                       bool optional) {
  if (error_) return nullptr;
  const gguf::Tensor* tensor = file_->FindTensor(name);
  if (tensor == nullptr) {
    if (!optional) {
      Fail("tensor " + name + " " + ShapeText(in, out) + " is missing; the architecture " +
           hyperparameters_.architecture + " needs it");
    }
    return nullptr;
  }
  if (!HasShape(*tensor, in, out)) {
    Fail("tensor " + name + " has shape " + ShapeText(*tensor) + ", expected " +
         ShapeText(in, out));
    return nullptr;
  }
  const size_t index = static_cast<size_t>(tensor - file_->tensors().data());
  WINNOW_CHECK(index < taken_.size());
  if (!taken_[index]) n_parameters_ += tensor->n_elements();
  taken_[index] = true;
  return tensor;
}

kernels::Matrix TensorReader::Vector(const std::string& name, int64_t n, bool optional) {
  const gguf::Tensor* tensor = Take(name, n, 1, optional);
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(n));
  kernels::Dequantize(tensor->type, tensor->bytes, values);
  const kernels::Matrix vector = {.storage = store_.vectors.get(),
                                  .offset = n_vector_floats_,
                                  .rows = 1,
                                  .cols = n,
                                  .stride = n};
  n_vector_floats_ += AlignedSize(n);
  backend_.Write(vector, values);
  return vector;
}

const kernels::Weight* TensorReader::Matrix(const std::string& name, int64_t in, int64_t out,
                                            bool optional) {
  const std::string full_name = name + ".weight";
  const gguf::Tensor* tensor = Take(full_name, in, out, optional);
  if (tensor == nullptr) return nullptr;
  auto weight = backend_.LoadWeight({.name = full_name,
                                     .type = tensor->type,
                                     .rows = out,
                                     .cols = in,
                                     .bytes = tensor->bytes,
                                     .keep_alive = file_});
  if (!weight) {
    Fail(full_name + ": " + weight.error().message);
    return nullptr;
  }
  store_.weights.push_back(std::move(weight).value());
  return store_.weights.back().get();
}

std::vector<float> TensorReader::OptionalFloats(const std::string& name, int64_t n) {
  const gguf::Tensor* tensor = Take(name + ".weight", n, 1, /*optional=*/true);
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(n));
  kernels::Dequantize(tensor->type, tensor->bytes, values);
  return values;
}

Norm TensorReader::OutputNorm(const Architecture& architecture) {
  const int64_t n = hyperparameters_.embedding;
  Norm norm{.weight = Vector("output_norm.weight", n, /*optional=*/false), .bias = {}};
  if (architecture.norm == NormKind::kLayer) {
    norm.bias = Vector("output_norm.bias", n, /*optional=*/false);
  }
  return norm;
}

Norm TensorReader::ReadNorm(int layer, std::string_view name, Bias bias, bool optional) {
  const std::string full_name = LayerName(layer, name);
  if (optional && !Has(full_name)) return {};
  const int64_t n = hyperparameters_.embedding;
  Norm norm{.weight = Vector(full_name + ".weight", n, /*optional=*/false), .bias = {}};
  if (bias != Bias::kNone) {
    norm.bias = Vector(full_name + ".bias", n, bias == Bias::kOptional);
  }
  return norm;
}

kernels::Matrix TensorReader::HeadNorm(int layer, std::string_view name) {
  return Vector(LayerName(layer, name) + ".weight", hyperparameters_.layer(layer).key_dim,
                /*optional=*/false);
}

Product::Piece TensorReader::Piece(const std::string& name, int64_t in, int64_t out, Bias bias) {
  Product::Piece piece{.weight = Matrix(name, in, out), .bias = {}};
  if (bias != Bias::kNone) piece.bias = Vector(name + ".bias", out, bias == Bias::kOptional);
  return piece;
}

Product TensorReader::Single(const std::string& name, int64_t in, int64_t out, Bias bias) {
  return {.pieces = {Piece(name, in, out, bias)}, .n_pieces = 1};
}

Product TensorReader::QueryKeyValue(int layer, Bias bias) {
  const LayerSpec& spec = hyperparameters_.layer(layer);
  const int64_t in = hyperparameters_.embedding;
  const int64_t q = static_cast<int64_t>(spec.n_heads) * spec.key_dim;
  const int64_t k = static_cast<int64_t>(spec.n_kv_heads) * spec.key_dim;
  const int64_t v = static_cast<int64_t>(spec.n_kv_heads) * spec.value_dim;
  if (const std::string fused = LayerName(layer, "attn_qkv"); Has(fused)) {
    return Single(fused, in, q + k + v, bias);
  }
  return {.pieces = {Piece(LayerName(layer, "attn_q"), in, q, bias),
                     Piece(LayerName(layer, "attn_k"), in, k, bias),
                     Piece(LayerName(layer, "attn_v"), in, v, bias)},
          .n_pieces = 3};
}

Product TensorReader::AttentionOutput(int layer, Bias bias) {
  const LayerSpec& spec = hyperparameters_.layer(layer);
  const int64_t in = static_cast<int64_t>(spec.n_heads) * spec.value_dim;
  return Single(LayerName(layer, "attn_output"), in, hyperparameters_.embedding, bias);
}

int64_t TensorReader::Width(int layer) const { return hyperparameters_.layer(layer).feed_forward; }

FeedForwardPart TensorReader::GatedFeedForward(int layer, kernels::Activation activation,
                                               Bias bias) {
  const int64_t in = hyperparameters_.embedding;
  const int64_t width = Width(layer);
  return {.input = {.pieces = {Piece(LayerName(layer, "ffn_gate"), in, width, bias),
                               Piece(LayerName(layer, "ffn_up"), in, width, bias)},
                    .n_pieces = 2},
          .gated = true,
          .activation = activation,
          .output = Single(LayerName(layer, "ffn_down"), width, in, bias),
          .width = width};
}

FeedForwardPart TensorReader::FusedGatedFeedForward(int layer, kernels::Activation activation,
                                                    Bias bias) {
  const int64_t in = hyperparameters_.embedding;
  const int64_t width = Width(layer);
  return {.input = Single(LayerName(layer, "ffn_up"), in, 2 * width, bias),
          .gated = true,
          .activation = activation,
          .output = Single(LayerName(layer, "ffn_down"), width, in, bias),
          .width = width};
}

FeedForwardPart TensorReader::PlainFeedForward(int layer, kernels::Activation activation,
                                               Bias bias) {
  const int64_t in = hyperparameters_.embedding;
  const int64_t width = Width(layer);
  return {.input = Single(LayerName(layer, "ffn_up"), in, width, bias),
          .gated = false,
          .activation = activation,
          .output = Single(LayerName(layer, "ffn_down"), width, in, bias),
          .width = width};
}

Result<WeightStore> TensorReader::Finish() {
  for (size_t i = 0; i < taken_.size() && !error_; ++i) {
    const gguf::Tensor& tensor = file_->tensors()[i];
    if (!taken_[i] && !IsIgnorable(tensor.name)) {
      Fail("tensor " + tensor.name + " " + ShapeText(tensor) + " is unknown to the architecture " +
           hyperparameters_.architecture);
    }
  }
  if (error_) return *error_;
  return std::move(store_);
}

}  // namespace winnow::model
