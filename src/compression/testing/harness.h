#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attention/layer_pass.h"
#include "compression/method.h"
#include "compression/registry.h"

// A sequence without a model: runs a method over a small cache with given attention weights. Takes
// the place of runtime, and computes the taps that the method asks for from the weights.
namespace winnow::compression::testing {

struct HarnessConfig {
  int n_layers = 1;
  int n_q_heads = 1;
  int n_kv_heads = 1;  // of the model; the cache has n_q_heads if every query head keeps its own
                       // entries
  int dim = 2;         // of keys and values
  int64_t budget = 0;
  int64_t capacity = 4096;
};

// One attention weight: of query `query` of the call (0 is the oldest) for the entry at `rank` of
// the query head's KV head.
struct Cell {
  int layer = 0;
  int q_head = 0;
  int64_t query = 0;
  int64_t rank = 0;
  Position position = 0;  // of the entry, in the text
};
// Called for visible entries only. The weights need not sum to one.
using Weights = std::function<double(const Cell&)>;
// A key or value: [dim].
using Vectors = std::function<std::vector<float>(int layer, int kv_head, Position position)>;

// Every query gives token t the weight by_position[t].
Weights ByPosition(std::vector<double> by_position);
// Equal for equal seed, layer, head, query and position: multiples of 1/256 below 1, so that sums
// are exact and ties are common.
Weights RandomWeights(uint64_t seed);
// The newest query of the call gives the entry at `rank` the weight by_rank[rank]; the other
// queries give none. So by_rank is also the call's column sums and window sums.
Weights LastQuery(std::vector<double> by_rank, int64_t n_new);

// The method of an entry with parameters as on the command line, "window=4,kernel=3". Aborts on bad
// parameters.
MethodPtr Make(const MethodEntry& entry, std::string_view parameters = "");

class Harness {
 public:
  Harness(MethodPtr method, const HarnessConfig& config);
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  // The keys and values of entries appended from now on; initially zeros.
  void SetKeys(Vectors keys) { keys_ = std::move(keys); }
  void SetValues(Vectors values) { values_ = std::move(values); }
  // Queries, by query head: before RoPE for prompt rows, after RoPE for a replay; initially zeros.
  void SetQueries(Vectors queries) { queries_ = std::move(queries); }
  // Frequencies of RoPE for the pairs (i, i + n) of dimensions; initially no pair rotates. Keys
  // from SetKeys are taken as keys after RoPE.
  void SetAngles(const std::vector<double>& frequencies);
  // The output projection of a query head, [model_dim, dim]; initially none.
  using Projection = std::function<std::vector<float>(int layer, int q_head)>;
  void SetProjection(int model_dim, Projection projection);
  // If the method asks for a replay, prompts that exceed the budget are replayed: n_rows rows with
  // these weights, in equal passes one after another. `norms` gives the norm of the residual stream
  // at a replayed row.
  using Norms = std::function<double(int layer, int64_t row)>;
  struct Passes {
    int64_t n = 1;
    int64_t first = 0;  // token of the call that the first pass repeats first
  };
  void SetReplay(int64_t n_rows, Weights weights, Norms norms = {}, Passes passes = {1, 0});
  // Error curves of the model, for methods that need them. Must outlive the harness.
  void SetProfiles(const ErrorProfiles& profiles) { profiles_ = &profiles; }

  // A prompt of n tokens, or a chunk of one, through all layers.
  void Prefill(int64_t n, const Weights& weights) { Call(Phase::kPrefill, n, weights); }
  // One generated token.
  void Decode(const Weights& weights) { Call(Phase::kDecode, 1, weights); }
  // The same with one weight per rank, the new entry last, equal for all layers and heads.
  void Decode(std::vector<double> row);

  // Text positions of the kept entries, oldest first.
  std::vector<Position> Kept(int layer = 0, int kv_head = 0) const;
  // Text positions evicted in the last call, over all its plans, in the order of eviction.
  std::vector<Position> Evicted(int layer = 0, int kv_head = 0) const;
  // A column of the method's state, oldest entry first.
  std::vector<double> Column(int column, int layer = 0, int kv_head = 0) const;
  // Stored key or value of the entry at `rank`.
  std::vector<float> Key(int64_t rank, int layer = 0, int kv_head = 0) const;
  std::vector<float> Value(int64_t rank, int layer = 0, int kv_head = 0) const;

  cache::Cache& cache() const { return *cache_; }
  const Method& method() const { return *method_; }
  int64_t n_seen() const { return n_seen_; }
  // The plans of the last call, as they were applied.
  const std::vector<Plan>& plans() const { return plans_; }

 private:
  void Call(Phase phase, int64_t n, const Weights& weights);
  // One layer of a call through attention/layer_pass, with the given weights in place of attention.
  void RunLayer(Phase phase, int layer);
  void Attend(int layer, const kernels::Attention& attention) const;
  kernels::Taps ComputeTaps(const kernels::TapSpec& spec, int layer, int64_t first,
                            int64_t n) const;
  void Decide(Phase phase, const attention::LayerDone& done);
  void Replay();
  void DecideAll();
  // The rows of one pass, which are rows [first, first + n) of the replay.
  attention::Rows ReplayRows(int layer, int64_t first, int64_t n) const;
  // The fields of LayerCall that every decision has.
  LayerCall MakeCall(Phase phase, int layer, const kernels::Taps& taps);
  void MakeAngles(const std::vector<double>& frequencies);
  // The vectors of all heads for the current tokens, [token, n_heads * dim], in `storage`.
  kernels::Matrix Write(const Vectors& vectors, int n_heads, int layer,
                        std::unique_ptr<kernels::Storage>& storage) const;
  void RecordPlan(const Plan& plan);
  std::vector<float> Row(const kernels::HeadRows& rows, int64_t rank, int layer, int kv_head) const;

  MethodPtr method_;
  HarnessConfig config_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<cache::Cache> cache_;
  attention::Sequence sequence_;
  std::unique_ptr<kernels::Storage> angles_storage_;
  kernels::RopeTable angles_;  // initially zero: keys are the same before and after RoPE
  Scratch scratch_;
  PlanList plan_list_;
  std::unique_ptr<Memory> memory_;  // of the current prefill call
  Vectors keys_, values_, queries_;
  std::unique_ptr<OutputProjections> projections_;
  int64_t n_replay_rows_ = 0;
  Weights replay_weights_;
  Norms replay_norms_;
  Passes replay_passes_;
  const ErrorProfiles* profiles_ = nullptr;
  bool replayed_ = false;
  int64_t n_seen_ = 0;
  // State of the current call.
  int64_t n_call_ = 0;            // its tokens, which n_seen_ does not include yet
  std::vector<Position> tokens_;  // those the current layer computes
  const Weights* weights_ = nullptr;
  std::vector<Plan> plans_;
  std::vector<std::vector<std::vector<Position>>> evicted_;  // [layer][kv_head]
};

}  // namespace winnow::compression::testing
