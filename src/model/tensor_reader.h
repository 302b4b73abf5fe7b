#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "kernels/ops.h"
#include "model/architecture.h"
#include "model/model.h"

namespace winnow::model {

// Owns the matrices and weights that layers point to.
struct WeightStore {
  std::unique_ptr<kernels::Storage> vectors;  // norms and biases, contiguous
  std::vector<std::unique_ptr<kernels::Weight>> weights;
};

// Takes tensors from a file by name, checks their shapes, and detects tensors that were not taken.
// The first error is kept until Finish(); after it every call returns empty parts, so that an
// architecture needs no error handling.
class TensorReader {
 public:
  enum class Bias { kNone, kOptional, kRequired };

  TensorReader(std::shared_ptr<const gguf::File> file, kernels::Backend& backend,
               const Hyperparameters& hyperparameters);

  const Hyperparameters& hyperparameters() const { return hyperparameters_; }

  // Tensors outside the layers: "token_embd", "output", "output_norm".
  // The weight NAME.weight [in, out]; null if it is `optional` and absent.
  const kernels::Weight* Matrix(const std::string& name, int64_t in, int64_t out,
                                bool optional = false);
  // The vector NAME.weight of `n` elements as floats on the host; empty if absent.
  std::vector<float> OptionalFloats(const std::string& name, int64_t n);
  Norm OutputNorm(const Architecture& architecture);

  // Parts of layer `layer`; `name` without "blk.N." and ".weight".
  Norm ReadNorm(int layer, std::string_view name, Bias bias = Bias::kNone, bool optional = false);
  // Weight [key_dim] of a norm of every head.
  kernels::Matrix HeadNorm(int layer, std::string_view name);
  // attn_qkv, or attn_q, attn_k and attn_v: any architecture may have either form.
  Product QueryKeyValue(int layer, Bias bias);
  Product AttentionOutput(int layer, Bias bias);
  // ffn_gate, ffn_up and ffn_down.
  FeedForwardPart GatedFeedForward(int layer, kernels::Activation activation, Bias bias);
  // ffn_up holds the rows of the gate, then those of up.
  FeedForwardPart FusedGatedFeedForward(int layer, kernels::Activation activation, Bias bias);
  // ffn_up and ffn_down.
  FeedForwardPart PlainFeedForward(int layer, kernels::Activation activation, Bias bias);

  // Elements of all tensors taken so far.
  int64_t n_parameters() const { return n_parameters_; }
  // Returns the weights taken. Error, the first of: a tensor that is missing, has a wrong shape or
  // is refused by the backend; then a tensor of the file that was not taken.
  Result<WeightStore> Finish();

 private:
  bool Has(const std::string& name) const;
  // The tensor, with its shape checked; null after an error, or if it is optional and absent.
  const gguf::Tensor* Take(const std::string& name, int64_t in, int64_t out, bool optional);
  kernels::Matrix Vector(const std::string& name, int64_t n, bool optional);
  Product::Piece Piece(const std::string& name, int64_t in, int64_t out, Bias bias);
  Product Single(const std::string& name, int64_t in, int64_t out, Bias bias);
  int64_t Width(int layer) const;  // of the feed-forward part
  void Fail(std::string message);

  std::shared_ptr<const gguf::File> file_;
  kernels::Backend& backend_;
  Hyperparameters hyperparameters_;
  WeightStore store_;
  int64_t n_vector_floats_ = 0;  // used of store_.vectors
  std::vector<bool> taken_;      // [tensor]
  int64_t n_parameters_ = 0;
  std::optional<Error> error_;
};

}  // namespace winnow::model
