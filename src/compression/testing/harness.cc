#include "compression/testing/harness.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "compression/decide.h"
#include "compression/taps.h"
#include "kernels/backends.h"

namespace winnow::compression::testing {
namespace {

cache::CacheConfig CacheConfigFrom(const Method& method, const HarnessConfig& config) {
  const Traits& traits = method.traits();
  return {
      .shape = {.n_layers = config.n_layers,
                .n_kv_heads = traits.storage.per_query_head ? config.n_q_heads : config.n_kv_heads,
                .key_dim = config.dim,
                .value_dim = config.dim},
      .key_type = kernels::TensorType::kF32,
      .value_type = kernels::TensorType::kF32,
      .capacity = config.capacity,
      .storage = traits.storage,
      .state = method.needs().state,
      .n_copies = traits.storage.per_query_head ? config.n_q_heads / config.n_kv_heads : 1};
}

}  // namespace

Weights ByPosition(std::vector<double> by_position) {
  return [weights = std::move(by_position)](const Cell& cell) {
    return weights.at(static_cast<size_t>(cell.position));
  };
}

Weights RandomWeights(uint64_t seed) {
  return [seed](const Cell& cell) {
    uint64_t mixed = seed;
    for (const int64_t part :
         {int64_t{cell.layer}, int64_t{cell.q_head}, cell.query, int64_t{cell.position}}) {
      mixed = Rng(mixed ^ static_cast<uint64_t>(part)).Next();
    }
    return static_cast<double>(mixed % 256) / 256;
  };
}

Weights LastQuery(std::vector<double> by_rank, int64_t n_new) {
  return [weights = std::move(by_rank), n_new](const Cell& cell) {
    return cell.query == n_new - 1 ? weights.at(static_cast<size_t>(cell.rank)) : 0;
  };
}

MethodPtr Make(const MethodEntry& entry, std::string_view parameters) {
  std::string text(entry.name);
  if (!parameters.empty()) text += ":" + std::string(parameters);
  const auto spec = ParseSpec(text);
  WINNOW_CHECK(spec.has_value());
  auto made = entry.make(spec.value());
  if (!made.has_value()) std::fprintf(stderr, "%s\n", made.error().message.c_str());
  WINNOW_CHECK(made.has_value());
  return made.value();
}

Harness::Harness(MethodPtr method, const HarnessConfig& config)
    : method_(std::move(method)),
      config_(config),
      backend_(kernels::MakeReferenceBackend()),
      keys_([this](int, int, Position) { return std::vector<float>(config_.dim); }),
      values_(keys_),
      queries_(keys_) {
  auto made = cache::Cache::Make(*backend_, CacheConfigFrom(*method_, config_));
  WINNOW_CHECK(made.has_value());
  cache_ = std::move(made).value();
  sequence_.cache = cache_.get();
  MakeAngles({0.0});
}

kernels::Matrix Harness::Write(const Vectors& vectors, int n_heads, int layer,
                               std::unique_ptr<kernels::Storage>& storage) const {
  std::vector<float> rows;
  for (const Position position : tokens_) {
    for (int head = 0; head < n_heads; ++head) {
      const std::vector<float> one = vectors(layer, head, position);
      rows.insert(rows.end(), one.begin(), one.end());
    }
  }
  auto made = backend_->Allocate(static_cast<int64_t>(rows.size() * sizeof(float)));
  WINNOW_CHECK(made.has_value());
  storage = std::move(made).value();
  const int64_t cols = static_cast<int64_t>(n_heads) * config_.dim;
  const kernels::Matrix matrix = {storage.get(), 0, static_cast<int64_t>(tokens_.size()), cols,
                                  cols};
  backend_->Write(matrix, rows);
  return matrix;
}

void Harness::Decode(std::vector<double> row) { Decode(LastQuery(std::move(row), 1)); }

// The taps of the queries [first, first + n) of the call, whose entries are the newest.
kernels::Taps Harness::ComputeTaps(const kernels::TapSpec& spec, int layer, int64_t first,
                                   int64_t n) const {
  using Reduce = kernels::TapSpec::Reduce;
  kernels::Taps taps;
  if (!spec.any()) return taps;
  const int group = config_.n_q_heads / cache_->config().shape.n_kv_heads;
  const int per_list = spec.reduce == Reduce::kNone ? 1 : group;
  const int n_lists = config_.n_q_heads / per_list;
  const auto lists = static_cast<size_t>(n_lists);
  const bool sums = spec.sees_all() || spec.last_sums > 0;
  taps.n_last_rows = static_cast<int>(std::min<int64_t>(spec.last_rows, n));
  taps.n_last_sums = static_cast<int>(std::min<int64_t>(spec.last_sums, n));
  if (spec.last_rows > 0) taps.last_rows.resize(lists);
  if (spec.last_sums > 0) taps.last_sums.resize(lists);
  if (spec.column_sums) taps.column_sums.resize(lists);
  if (spec.square_sums) taps.square_sums.resize(lists);
  if (spec.column_max) taps.column_max.resize(lists);
  for (int list = 0; list < n_lists; ++list) {
    const int kv_head = list * per_list / group;
    const std::span<const Slot> order = cache_->order(layer, kv_head);
    const std::span<const Position> positions = cache_->positions(layer, kv_head);
    const auto n_slots = static_cast<int64_t>(order.size());
    const auto at = static_cast<size_t>(list);
    if (spec.last_rows > 0) {
      taps.last_rows[at].resize(static_cast<size_t>(taps.n_last_rows * n_slots));
    }
    if (spec.last_sums > 0) taps.last_sums[at].resize(order.size());
    if (spec.column_sums) taps.column_sums[at].resize(order.size());
    if (spec.square_sums) taps.square_sums[at].resize(order.size());
    if (spec.column_max) taps.column_max[at].resize(order.size());
    for (int64_t query = sums ? 0 : n - taps.n_last_rows; query < n; ++query) {
      for (int64_t rank = 0; rank <= n_slots - n + query; ++rank) {
        const Slot slot = order[static_cast<size_t>(rank)];
        double weight = 0;
        for (int i = 0; i < per_list; ++i) {
          const double one = (*weights_)({.layer = layer,
                                          .q_head = list * per_list + i,
                                          .query = first + query,
                                          .rank = rank,
                                          .position = positions[static_cast<size_t>(slot)]});
          weight = spec.reduce == Reduce::kMax ? std::max(weight, one) : weight + one;
        }
        if (spec.reduce == Reduce::kMean) weight /= group;
        const int64_t row = query - (n - taps.n_last_rows);
        const auto column = static_cast<size_t>(slot);
        if (row >= 0 && spec.last_rows > 0) {
          taps.last_rows[at][static_cast<size_t>(row * n_slots + slot)] =
              static_cast<float>(weight);
        }
        if (query >= n - spec.last_sums) taps.last_sums[at][column] += weight;
        if (spec.column_sums) taps.column_sums[at][column] += weight;
        if (spec.square_sums) taps.square_sums[at][column] += weight * weight;
        if (spec.column_max) {
          float& largest = taps.column_max[at][column];
          largest = std::max(largest, static_cast<float>(weight));
        }
      }
    }
  }
  return taps;
}

void Harness::RunLayer(Phase phase, int layer) {
  const auto n = static_cast<int64_t>(tokens_.size());
  // No rows reach this layer: the method decides about the entries that are there.
  if (n == 0) return Decide(phase, {.layer = layer, .taps = {}, .rope = angles_});
  std::unique_ptr<kernels::Storage> k, v, q;
  const kernels::Matrix keys = Write(keys_, config_.n_kv_heads, layer, k);
  const kernels::Matrix values = Write(values_, config_.n_kv_heads, layer, v);
  sequence_.rows = phase == Phase::kPrefill ? method_->needs().prompt_rows : attention::RowSpec{};

  sequence_.taps = TapsOfCall(method_->needs(), phase, n_seen_ + n_call_);
  sequence_.after_layer = [&](const attention::LayerDone& done) -> Result<void> {
    Decide(phase, done);
    return {};
  };
  attention::LayerPass pass(*backend_,
                            {.n_heads = config_.n_q_heads, .key_dim = config_.dim, .scale = 1},
                            [&](std::span<const kernels::Attention> all) {
                              for (const kernels::Attention& one : all) Attend(layer, one);
                            });
  // Attend needs no queries, and nothing reads the output.
  const kernels::Matrix nothing = {.rows = n};
  const kernels::Matrix queries =
      sequence_.rows.any() ? Write(queries_, config_.n_q_heads, layer, q) : nothing;
  const attention::LayerPass::Span span = {.sequence = &sequence_, .n_rows = n, .first_output = n};
  pass.Start(layer, angles_, {&span, 1});
  const Result<void> done =
      pass.Run({.q = queries, .k = keys, .v = values, .out = nothing, .positions = tokens_});
  WINNOW_CHECK(done.has_value());
}

void Harness::Attend(int layer, const kernels::Attention& attention) const {
  const Position newest =
      cache_->positions(layer, 0)[static_cast<size_t>(cache_->order(layer, 0).back())];
  const auto end = std::find(tokens_.begin(), tokens_.end(), newest) + 1 - tokens_.begin();
  *attention.found = ComputeTaps(attention.taps, layer, end - attention.q.rows, attention.q.rows);
}

void Harness::Decide(Phase phase, const attention::LayerDone& done) {
  LayerCall call = MakeCall(phase, done.layer, done.taps);
  call.rows = done.rows;
  call.rope = &done.rope;
  call.scale = done.scale;
  DecideAndApply(*method_, *cache_, call, done.rope, plan_list_,
                 {.before = [this](const Plan& plan) { RecordPlan(plan); }});
}

void Harness::RecordPlan(const Plan& plan) {
  const int n_heads = cache_->config().shape.n_kv_heads;
  WINNOW_CHECK(plan.heads.size() == static_cast<size_t>(n_heads));
  for (int head = 0; head < n_heads; ++head) {
    const std::span<const Position> positions = cache_->positions(plan.layer, head);
    for (const Slot slot : plan.heads[static_cast<size_t>(head)].evict) {
      WINNOW_CHECK(slot >= 0 && static_cast<size_t>(slot) < positions.size());
      evicted_[static_cast<size_t>(plan.layer)][static_cast<size_t>(head)].push_back(
          positions[static_cast<size_t>(slot)]);
    }
  }
  plans_.push_back(plan);
}

void Harness::Call(Phase phase, int64_t n, const Weights& weights) {
  plans_.clear();
  weights_ = &weights;
  tokens_.resize(static_cast<size_t>(n));
  std::iota(tokens_.begin(), tokens_.end(), static_cast<Position>(n_seen_));
  n_call_ = n;
  replayed_ = false;
  evicted_.assign(
      static_cast<size_t>(config_.n_layers),
      std::vector<std::vector<Position>>(static_cast<size_t>(cache_->config().shape.n_kv_heads)));
  cache_->BeginCall(phase, n);
  if (phase == Phase::kPrefill) memory_ = method_->MakeMemory();
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    RunLayer(phase, layer);
    const std::vector<int32_t>& kept = plan_list_.kept_rows;
    for (size_t i = 0; i < kept.size(); ++i) tokens_[i] = tokens_[static_cast<size_t>(kept[i])];
    if (!kept.empty()) tokens_.resize(kept.size());
  }
  n_seen_ += std::exchange(n_call_, 0);
  if (phase == Phase::kPrefill) {
    Replay();
    DecideAll();
  }
  memory_.reset();
}

LayerCall Harness::MakeCall(Phase phase, int layer, const kernels::Taps& taps) {
  return {.backend = *backend_,
          .cache = *cache_,
          .state = cache::StateView(*cache_),
          .scratch = scratch_,
          .taps = &taps,
          .phase = phase,
          .layer = layer,
          .n_layers = config_.n_layers,
          .n_q_heads = config_.n_q_heads,
          .n_new = static_cast<int64_t>(tokens_.size()),
          .n_seen = n_seen_ + n_call_,
          .budget = config_.budget,
          .memory = memory_.get(),
          .projections = projections_.get(),
          .profiles = profiles_,
          .replayed = replayed_};
}

void Harness::DecideAll() {
  const kernels::Taps none;
  LayerCall call = MakeCall(Phase::kPrefill, config_.n_layers - 1, none);
  const PlanHooks hooks = {.before = [this](const Plan& plan) { RecordPlan(plan); }};
  while (!DecideSomeAndApply(*method_, *cache_, call, plan_list_, hooks)) ++call.pass;
}

std::vector<Position> Harness::Kept(int layer, int kv_head) const {
  std::vector<Position> kept;
  for (const Slot slot : cache_->order(layer, kv_head)) {
    kept.push_back(cache_->positions(layer, kv_head)[static_cast<size_t>(slot)]);
  }
  // The cache's order is the order of the text, independent of slots.
  WINNOW_CHECK(std::is_sorted(kept.begin(), kept.end(), std::less_equal<>()));
  return kept;
}

std::vector<Position> Harness::Evicted(int layer, int kv_head) const {
  return evicted_[static_cast<size_t>(layer)][static_cast<size_t>(kv_head)];
}

std::vector<double> Harness::Column(int column, int layer, int kv_head) const {
  std::vector<double> numbers;
  for (const Slot slot : cache_->order(layer, kv_head)) {
    numbers.push_back(cache_->column(layer, kv_head, column)[static_cast<size_t>(slot)]);
  }
  return numbers;
}

std::vector<float> Harness::Row(const kernels::HeadRows& rows, int64_t rank, int layer,
                                int kv_head) const {
  int32_t row = cache_->order(layer, kv_head)[static_cast<size_t>(rank)];
  if (method_->traits().storage.shared_rows)
    row = cache_->rows(layer, kv_head)[static_cast<size_t>(row)];
  std::vector<float> out(static_cast<size_t>(rows.dim));
  backend_->ReadRows(rows, std::span(&row, 1), out);
  return out;
}

std::vector<float> Harness::Key(int64_t rank, int layer, int kv_head) const {
  return Row(cache_->keys(layer, kv_head), rank, layer, kv_head);
}

std::vector<float> Harness::Value(int64_t rank, int layer, int kv_head) const {
  return Row(cache_->values(layer, kv_head), rank, layer, kv_head);
}

}  // namespace winnow::compression::testing
