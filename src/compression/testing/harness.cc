#include "compression/testing/harness.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "compression/taps.h"

namespace winnow::compression::testing {
namespace {

cache::CacheConfig CacheConfigOf(const Method& method, const HarnessConfig& config) {
  const Traits& traits = method.traits();
  return {.shape = {.n_layers = config.n_layers,
                    .n_kv_heads = config.n_kv_heads,
                    .key_dim = config.dim,
                    .value_dim = config.dim},
          .key_type = kernels::TensorType::kF32,
          .value_type = kernels::TensorType::kF32,
          .capacity = config.capacity,
          .positions = traits.positions,
          .distance_cap = traits.distance_cap,
          .state = method.needs().state,
          .shared_rows = traits.shared_rows};
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
      values_(keys_) {
  auto made = cache::Cache::Make(*backend_, CacheConfigOf(*method_, config_));
  WINNOW_CHECK(made.has_value());
  cache_ = std::move(made).value();
}

void Harness::Decode(std::vector<double> row) { Decode(LastQuery(std::move(row), 1)); }

void Harness::AppendTokens(int layer, std::span<const Position> positions) {
  const auto n = static_cast<int64_t>(positions.size());
  const int64_t cols = static_cast<int64_t>(config_.n_kv_heads) * config_.dim;
  std::vector<float> k, v;
  for (const Position position : positions) {
    for (int head = 0; head < config_.n_kv_heads; ++head) {
      const std::vector<float> key = keys_(layer, head, position);
      const std::vector<float> value = values_(layer, head, position);
      k.insert(k.end(), key.begin(), key.end());
      v.insert(v.end(), value.begin(), value.end());
    }
  }
  auto storage = backend_->Allocate(2 * n * cols * static_cast<int64_t>(sizeof(float)));
  WINNOW_CHECK(storage.has_value());
  const kernels::Matrix keys = {storage.value().get(), 0, n, cols, cols};
  const kernels::Matrix values = {storage.value().get(), n * cols, n, cols, cols};
  backend_->Write(keys, k);
  backend_->Write(values, v);
  WINNOW_CHECK(cache_->Append(layer, keys, values, positions).has_value());
}

kernels::Taps Harness::TapsOf(const kernels::TapSpec& spec, int layer, int64_t n,
                              const Weights& weights) const {
  using Reduce = kernels::TapSpec::Reduce;
  kernels::Taps taps;
  if (!spec.any()) return taps;
  const int group = config_.n_q_heads / config_.n_kv_heads;
  const int per_list = spec.reduce == Reduce::kNone ? 1 : group;
  const int n_lists = config_.n_q_heads / per_list;
  const auto lists = static_cast<size_t>(n_lists);
  const bool sums = spec.column_sums || spec.square_sums || spec.last_sums > 0;
  taps.n_last_rows = static_cast<int>(std::min<int64_t>(spec.last_rows, n));
  taps.n_last_sums = static_cast<int>(std::min<int64_t>(spec.last_sums, n));
  if (spec.last_rows > 0) taps.last_rows.resize(lists);
  if (spec.last_sums > 0) taps.last_sums.resize(lists);
  if (spec.column_sums) taps.column_sums.resize(lists);
  if (spec.square_sums) taps.square_sums.resize(lists);
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
    for (int64_t query = sums ? 0 : n - taps.n_last_rows; query < n; ++query) {
      for (int64_t rank = 0; rank <= n_slots - n + query; ++rank) {
        const Slot slot = order[static_cast<size_t>(rank)];
        double weight = 0;
        for (int i = 0; i < per_list; ++i) {
          const double one = weights({.layer = layer,
                                      .q_head = list * per_list + i,
                                      .query = query,
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
      }
    }
  }
  return taps;
}

void Harness::Carry(const Plan& plan) {
  WINNOW_CHECK(plan.heads.size() == static_cast<size_t>(config_.n_kv_heads));
  for (int head = 0; head < config_.n_kv_heads; ++head) {
    const std::span<const Position> positions = cache_->positions(plan.layer, head);
    for (const Slot slot : plan.heads[static_cast<size_t>(head)].evict) {
      WINNOW_CHECK(slot >= 0 && static_cast<size_t>(slot) < positions.size());
      evicted_[static_cast<size_t>(plan.layer)][static_cast<size_t>(head)].push_back(
          positions[static_cast<size_t>(slot)]);
    }
  }
  cache_->Apply(plan);
  plans_.push_back(plan);
}

void Harness::UnrotateAbove(int layer, int64_t budget) {
  if (cache_->config().positions == PositionMode::kOriginal || !cache_->keys_rotated(layer) ||
      cache_->n_slots(layer, 0) <= budget) {
    return;
  }
  const int64_t n = config_.capacity;
  auto storage = backend_->Allocate(2 * n * static_cast<int64_t>(sizeof(float)));
  WINNOW_CHECK(storage.has_value());
  const kernels::Matrix table = {storage.value().get(), 0, n, 2, 2};
  std::vector<float> cos_sin;
  for (int64_t i = 0; i < n; ++i) cos_sin.insert(cos_sin.end(), {1.0f, 0.0f});
  backend_->Write(table, cos_sin);
  cache_->Unrotate(layer, {.table = table, .n_rotated = 2, .interleaved = false});
}

void Harness::Call(Phase phase, int64_t n, const Weights& weights) {
  plans_.clear();
  std::vector<Position> tokens(static_cast<size_t>(n));
  std::iota(tokens.begin(), tokens.end(), static_cast<Position>(n_seen_));
  evicted_.assign(static_cast<size_t>(config_.n_layers),
                  std::vector<std::vector<Position>>(static_cast<size_t>(config_.n_kv_heads)));
  const Needs needs = method_->needs();
  cache_->BeginCall(phase, n);
  for (int layer = 0; layer < config_.n_layers; ++layer) {
    AppendTokens(layer, tokens);
    const auto n_new = static_cast<int64_t>(tokens.size());
    const kernels::Taps taps = TapsOf(TapsOfCall(needs, phase, n_seen_ + n), layer, n_new, weights);
    if (config_.budget > 0) UnrotateAbove(layer, config_.budget);
    PlanList plans;
    for (int pass = 0; pass == 0 || plans.again; ++pass) {
      plans.Clear();
      method_->Decide({.backend = *backend_,
                       .cache = *cache_,
                       .scratch = scratch_,
                       .taps = taps,
                       .phase = phase,
                       .pass = pass,
                       .layer = layer,
                       .n_layers = config_.n_layers,
                       .n_q_heads = config_.n_q_heads,
                       .n_new = n_new,
                       .n_seen = n_seen_ + n,
                       .budget = config_.budget},
                      plans);
      for (const Plan& plan : plans.plans()) Carry(plan);
    }
    if (!plans.kept_rows.empty()) {
      std::vector<Position> kept;
      for (const int32_t row : plans.kept_rows) kept.push_back(tokens[static_cast<size_t>(row)]);
      tokens = kept;
    }
  }
  n_seen_ += n;
}

std::vector<Position> Harness::Kept(int layer, int kv_head) const {
  std::vector<Position> kept;
  for (const Slot slot : cache_->order(layer, kv_head)) {
    kept.push_back(cache_->positions(layer, kv_head)[static_cast<size_t>(slot)]);
  }
  // The order of the cache is the order of the text, whatever the slots.
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
  if (method_->traits().shared_rows) row = cache_->rows(layer, kv_head)[static_cast<size_t>(row)];
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
