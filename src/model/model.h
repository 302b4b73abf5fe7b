#pragma once

#include <cstdint>
#include <functional>
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
  // Divisors of the pair frequencies; empty: all 1. Long ones are for contexts beyond
  // original_context (phi3).
  std::vector<float> frequency_factors, frequency_factors_long;
};

// What the metadata of a model says about its shape. Checked on loading.
struct Hyperparameters {
  std::string architecture;
  std::string name;
  int n_layers = 0;
  int64_t embedding = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int key_dim = 0;    // per head
  int value_dim = 0;  // per head
  int64_t feed_forward = 0;
  int64_t vocabulary = 0;
  int64_t trained_context = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;   // of q·k
  int64_t sliding_window = 0;  // as the file says, 0: none; not applied, as in the reference engine
  RopeParameters rope;
};

// Reads and checks the hyperparameters only (for `inspect`: works without loading weights).
// Errors: unknown architecture (lists the supported ones), missing or impossible values, named by
// key.
Result<Hyperparameters> ReadHyperparameters(const gguf::File& file);
std::vector<std::string_view> SupportedArchitectures();

// What attention is given in one layer for some neighbouring tokens of a call.
struct Projections {
  int layer = 0;
  std::span<const cache::Position> positions;  // [row]
  bool rotated = false;                        // q and k are after RoPE
  kernels::Matrix q;                           // [row, n_heads * key_dim]
  kernels::Matrix k;                           // [row, n_kv_heads * key_dim]
  kernels::Matrix v;                           // [row, n_kv_heads * value_dim]
};

// One forward pass of some tokens of one sequence.
struct ForwardRequest {
  std::span<const int32_t> tokens;
  cache::Position first_position = 0;  // of tokens[0]; the others follow
  cache::Cache* cache = nullptr;

  // Logits are handed out in blocks of rows, in order: rows [first_row, first_row + n), n *
  // vocabulary floats. `logits_from` is the first token whose logits are wanted (tokens.size():
  // none).
  int64_t logits_from = 0;
  std::function<void(int64_t first_row, std::span<const float> logits)> on_logits;

  // Rows computed at a time inside a layer (bounds the scratch memory).
  int64_t row_block = 512;

  // Asked of attention in every layer; `after_layer` runs when a layer's attention over all tokens
  // is done and may Apply plans to the cache: prefill is layer-major, so all layers before are
  // already in their final state. Where keys are stored before RoPE, rope() turns them back.
  kernels::TapSpec taps;
  std::function<Result<void>(int layer, const kernels::Taps& taps)> after_layer;

  // To record queries, keys and values: called for every block of every layer before RoPE, and once
  // more after it unless the layer's keys are stored before RoPE.
  std::function<void(const Projections& projections)> on_projections;

  // Rows of the call (as given to the layer before) that the layers after this one still compute,
  // ascending, the last row among them; empty: all. Asked after `after_layer`.
  // Requires: logits of the last row only.
  std::function<std::span<const int32_t>(int layer)> rows_kept;

  // Below 1, single tokens attend to the smallest set of entries whose weights reach this sum, in
  // the layers from `top_p_from` on (Twilight); the entries used are added to *n_attended, summed
  // over query heads and layers.
  float top_p = 1;
  int top_p_from = 0;
  int64_t* n_attended = nullptr;

  // Called now and then with the share of the work done, 0..1; returning false stops with stopped =
  // true.
  std::function<bool(double done)> progress;
};

struct ForwardOutcome {
  bool stopped = false;  // by `progress`; the cache then holds an undefined part of the tokens
};

// One forward pass of one token of each of several sequences: every weight is read once for all of
// them, attention is each sequence's own. What a sequence gets differs from what it gets alone only
// by the rounding of products, where the backend multiplies so many rows in another way.
struct BatchRequest {
  // The members mean what those of ForwardRequest mean.
  struct Sequence {
    int32_t token = 0;
    cache::Position position = 0;
    cache::Cache* cache = nullptr;  // no two sequences share one
    std::span<float> logits;        // out [vocabulary]
    kernels::TapSpec taps = {};
    float top_p = 1;
    int top_p_from = 0;
    int64_t* n_attended = nullptr;
  };
  std::span<const Sequence> sequences;
  // Runs for every sequence, in their order, when the layer's attention is done for all.
  std::function<Result<void>(int layer, size_t sequence, const kernels::Taps& taps)> after_layer =
      {};
};

// How large the buffers of forward passes become.
struct BufferUse {
  int64_t n_tokens = 1;     // of the longest call
  int64_t row_block = 512;  // of that call
  int64_t n_sequences = 1;  // of the largest batch
  int64_t n_positions = 1;  // that keys and queries are rotated to
  bool operator==(const BufferUse&) const = default;
};

struct LoadOptions {
  int64_t context = 0;         // longest position that will be used; 0: the trained context
  bool check_tensors = false;  // look for NaN and infinities in the weights (reads the whole file)
};

class Model {
 public:
  virtual ~Model() = default;
  // Errors: as ReadHyperparameters; missing tensor, wrong shape (both shapes printed), unexpected
  // tensor.
  static Result<std::unique_ptr<Model>> Load(std::shared_ptr<const gguf::File> file,
                                             kernels::Backend& backend, const LoadOptions& options,
                                             Log& log);

  virtual const Hyperparameters& hyperparameters() const = 0;
  virtual cache::CacheShape cache_shape() const = 0;
  virtual int64_t n_parameters() const = 0;
  virtual int64_t context() const = 0;  // positions the RoPE table can cover
  // cos and sin of the positions used so far.
  virtual const kernels::RopeTable& rope() const = 0;

  // Errors: token id outside the vocabulary, cache full, position beyond context(), memory refused.
  // Requires: not called from inside a callback of another call; there is one set of buffers.
  virtual Result<ForwardOutcome> Forward(const ForwardRequest& request) = 0;
  // The same of several sequences. After an error every cache holds an undefined part of its token.
  virtual Result<void> ForwardBatch(const BatchRequest& request) = 0;
  // Memory that such calls take beside weights and caches. What the backend needs inside an
  // operation is not counted.
  virtual int64_t buffer_bytes(const BufferUse& use) const = 0;
};

}  // namespace winnow::model
