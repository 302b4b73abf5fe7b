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

// A sequence without a model: runs a method over a small cache on attention weights made by hand.
// Stands where runtime stands, but makes the taps the method asks for out of the weights.
namespace winnow::compression::testing {

struct HarnessConfig {
  int n_layers = 1;
  int n_q_heads = 1;
  int n_kv_heads = 1;  // of the model; the cache has n_q_heads where every query head keeps its own
  int dim = 2;         // of keys and values
  int64_t budget = 0;
  int64_t capacity = 4096;
};

// One attention weight: of query `query` of the call (0 is the oldest) for the entry at `rank`
// among those of the query head's KV head.
struct Cell {
  int layer = 0;
  int q_head = 0;
  int64_t query = 0;
  int64_t rank = 0;
  Position position = 0;  // of the entry, in the text
};
// Asked for visible entries only; what a query cannot see has no weight. Need not sum to one.
using Weights = std::function<double(const Cell&)>;
// A key or value: [dim].
using Vectors = std::function<std::vector<float>(int layer, int kv_head, Position position)>;

// Every query gives token t the weight by_position[t].
Weights ByPosition(std::vector<double> by_position);
// The same for the same seed, layer, head, query and position: multiples of 1/256 below 1, so that
// sums of them are exact and equal ones are common.
Weights RandomWeights(uint64_t seed);
// by_rank[rank] from the newest query of the call, nothing from the others: also the column sums
// and the window sums of the call.
Weights LastQuery(std::vector<double> by_rank, int64_t n_new);

// A method of the list with parameters as on the command line, "window=4,kernel=3". Bad ones abort.
MethodPtr Make(const MethodEntry& entry, std::string_view parameters = "");

class Harness {
 public:
  Harness(MethodPtr method, const HarnessConfig& config);
  Harness(const Harness&) = delete;
  Harness& operator=(const Harness&) = delete;

  // What the entries appended from now on hold; zeros at first.
  void SetKeys(Vectors keys) { keys_ = std::move(keys); }
  void SetValues(Vectors values) { values_ = std::move(values); }
  // What the queries of tokens are, before RoPE and, for a replay, as they meet the keys; zeros at
  // first. Asked for query heads.
  void SetQueries(Vectors queries) { queries_ = std::move(queries); }
  // How fast the pairs (i, i + n) of the dimensions rotate; at first none does. Keys made by hand
  // are those after RoPE.
  void SetAngles(const std::vector<double>& frequencies);
  // The output projection, [model_dim, dim] of a query head; none at first.
  using Projection = std::function<std::vector<float>(int layer, int q_head)>;
  void SetProjection(int model_dim, Projection projection);
  // Prompts that exceed the budget are replayed, if the method asks for it: n rows with these
  // weights, in equal passes one after another. Norms of the residual stream are asked for its
  // rows.
  using Norms = std::function<double(int layer, int64_t row)>;
  struct Passes {
    int64_t n = 1;
    int64_t first = 0;  // token of a call that the first pass repeats first
  };
  void SetReplay(int64_t n_rows, Weights weights, Norms norms = {}, Passes passes = {1, 0});
  // Error curves of the model, for methods that need them. Must outlive the harness.
  void SetProfiles(const ErrorProfiles& profiles) { profiles_ = &profiles; }

  // A prompt of n tokens, or a chunk of one, through all layers.
  void Prefill(int64_t n, const Weights& weights) { Call(Phase::kPrefill, n, weights); }
  // One generated token.
  void Decode(const Weights& weights) { Call(Phase::kDecode, 1, weights); }
  // The same, one weight per rank, the new entry's last, for all layers and heads.
  void Decode(std::vector<double> row);

  // Text positions of the entries, oldest first.
  std::vector<Position> Kept(int layer = 0, int kv_head = 0) const;
  // Of the last call, over all its plans, in the order they were made.
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
  // One layer of a call through attention/layer_pass, with weights made by hand in attention's
  // place.
  void RunLayer(Phase phase, int layer);
  void Attend(int layer, const kernels::Attention& attention) const;
  kernels::Taps ComputeTaps(const kernels::TapSpec& spec, int layer, int64_t first,
                            int64_t n) const;
  void Decide(Phase phase, const attention::LayerDone& done);
  void Replay();
  void DecideAll();
  // Those of a pass, whose rows are [first, first + n) of the replay.
  attention::Rows ReplayRows(int layer, int64_t first, int64_t n) const;
  // What a method is told of a layer in any case.
  LayerCall MakeCall(Phase phase, int layer, const kernels::Taps& taps);
  void MakeAngles(const std::vector<double>& frequencies);
  // Rows side by side of all heads of the current tokens, in `storage`.
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
  kernels::RopeTable angles_;  // all zero: keys made by hand are the same before and after RoPE
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
  // Of the call.
  int64_t n_call_ = 0;            // its tokens, which n_seen_ does not count yet
  std::vector<Position> tokens_;  // those the current layer computes
  const Weights* weights_ = nullptr;
  std::vector<Plan> plans_;
  std::vector<std::vector<std::vector<Position>>> evicted_;  // [layer][kv_head]
};

}  // namespace winnow::compression::testing
