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

// What the tensors of a file became. Matrices and weights that layers point to live here.
struct WeightStore {
  std::unique_ptr<kernels::Storage> vectors;  // norms and biases, one after the other
  std::vector<std::unique_ptr<kernels::Weight>> weights;
};

// Takes tensors out of a file by name, checks their shapes, and notices those that nobody asked
// for. The first error sticks: after it every call returns empty parts, so that an architecture's
// description needs no error handling. Finish() tells.
class TensorReader {
 public:
  enum class Bias { kNone, kOptional, kRequired };

  TensorReader(std::shared_ptr<const gguf::File> file, kernels::Backend& backend,
               const Hyperparameters& hyperparameters);

  const Hyperparameters& hyperparameters() const { return hyperparameters_; }

  // Tensors of the model as a whole: "token_embd", "output", "output_norm".
  // The weight NAME.weight [in, out]; null where it is `optional` and absent.
  const kernels::Weight* Matrix(const std::string& name, int64_t in, int64_t out,
                                bool optional = false);
  // A vector of floats NAME.weight of `n` elements on the host; empty where absent.
  std::vector<float> OptionalFloats(const std::string& name, int64_t n);
  Norm OutputNorm(const Architecture& architecture);

  // Parts of layer `layer`; `name` without "blk.N." and ".weight".
  Norm ReadNorm(int layer, std::string_view name, Bias bias = Bias::kNone, bool optional = false);
  // Normalises every head: [key_dim].
  kernels::Matrix HeadNorm(int layer, std::string_view name);
  // attn_qkv, or attn_q, attn_k and attn_v: both forms may appear in any architecture.
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
  // The weights taken, or the first error: a tensor missing, of another shape, refused by the
  // backend, or (last) present but not asked for by anybody.
  Result<WeightStore> Finish();

 private:
  bool Has(const std::string& name) const;
  // The tensor with its shape checked; null after an error or where it is optional and absent.
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
