#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "cache/cache.h"
#include "gguf/file.h"
#include "kernels/ops.h"

namespace winnow::model {

struct RopeParameters {
  enum class Scaling { kNone, kLinear, kYarn, kLongRope };
  bool interleaved = true;
  int n_rotated = 0;  // dimensions
  double base = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  int64_t original_context = 0;
  double attention_factor = 1;  // multiplies cos and sin
  double yarn_ext_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
  // Divisors of the pair frequencies; empty: all 1. The long ones apply to contexts beyond
  // original_context (phi3).
  std::vector<float> frequency_factors, frequency_factors_long;
  bool operator==(const RopeParameters&) const = default;
};

// Parameters that may differ between layers. The cache and every product use the layer's own
// numbers; compression methods need layers with equal heads (runtime/session/session.cc).
struct LayerSpec {
  int n_heads = 0;
  int n_kv_heads = 0;
  int key_dim = 0;             // per head
  int value_dim = 0;           // per head
  float attention_scale = 0;   // multiplies q·k
  int64_t sliding_window = 0;  // from the file, 0: none; not applied, as in the reference engine
  RopeParameters rope;
  int64_t feed_forward = 0;  // width of the feed-forward part
  bool operator==(const LayerSpec&) const = default;
};

// Maximum context in tokens: positions must fit the type that the cache stores.
inline constexpr int64_t kMaxContext = std::numeric_limits<cache::Position>::max();

// The shape of a model, from its metadata. Checked when read.
struct Hyperparameters {
  std::string architecture;
  std::string name;
  int n_layers = 0;
  int64_t embedding = 0;
  std::vector<LayerSpec> layers;  // [n_layers]
  int64_t vocabulary = 0;
  int64_t trained_context = 0;
  float norm_epsilon = 0;

  const LayerSpec& layer(int index) const { return layers[static_cast<size_t>(index)]; }
  // Whether all layers have equal numbers of heads, of equal sizes.
  bool has_equal_heads() const;
};

// Reads and checks the hyperparameters without loading weights (for `inspect`). Errors: unknown
// architecture (the message lists the supported ones); missing or impossible values, with their
// key.
Result<Hyperparameters> ReadHyperparameters(const gguf::File& file);
std::vector<std::string_view> SupportedArchitectures();

struct LoadOptions {
  int64_t context = 0;         // positions that will be used; 0: the trained context
  int64_t spare_context = 0;   // further positions for a replay, limited to the trained context
  bool check_tensors = false;  // fail on NaN or infinity in the weights (reads the whole file)
};

struct ModelParts;
class RopePositions;

// Weights and hyperparameters. A loaded model never changes: any number of steps (step.h) may share
// it, on several threads if the backend allows that.
class Model {
 public:
  // Errors: those of ReadHyperparameters; context out of range; missing or unexpected tensor, or
  // one with a wrong shape (the message has both shapes); memory refused.
  static Result<std::unique_ptr<Model>> Load(std::shared_ptr<const gguf::File> file,
                                             kernels::Backend& backend, const LoadOptions& options,
                                             Log& log);
  Model(ModelParts parts, kernels::Backend& backend);
  ~Model();

  const Hyperparameters& hyperparameters() const;
  cache::CacheShape cache_shape() const;
  // Whether a cache has the model's shape, with every KV head config.n_copies times.
  bool Fits(const cache::CacheConfig& config) const;
  int64_t n_parameters() const;
  int64_t context() const;  // positions that a text or replay may use

  // For steps:
  const ModelParts& parts() const { return *parts_; }
  kernels::Backend& backend() const { return backend_; }
  // Layers with equal RopeParameters share a RopePositions.
  RopePositions& rope(size_t number) const { return *ropes_[number]; }
  size_t n_ropes() const { return ropes_.size(); }
  size_t rope_of_layer(int layer) const { return rope_of_layer_[static_cast<size_t>(layer)]; }

 private:
  kernels::Backend& backend_;
  std::unique_ptr<const ModelParts> parts_;
  // Grow with the positions in use; synchronised.
  std::vector<std::unique_ptr<RopePositions>> ropes_;
  std::vector<size_t> rope_of_layer_;  // [layer]
};

}  // namespace winnow::model
