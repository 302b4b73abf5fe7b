// The parts of the harness for methods that read more than attention: rotations, projections, a
// replay.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "compression/testing/harness.h"

namespace winnow::compression::testing {

void Harness::MakeAngles(const std::vector<double>& frequencies) {
  const int64_t n = config_.capacity;
  const auto n_rotated = static_cast<int64_t>(2 * frequencies.size());
  auto storage = backend_->Allocate(n_rotated * n * static_cast<int64_t>(sizeof(float)));
  WINNOW_CHECK(storage.has_value());
  angles_storage_ = std::move(storage).value();
  angles_ = {.table = {angles_storage_.get(), 0, n, n_rotated, n_rotated},
             .n_rotated = static_cast<int>(n_rotated),
             .interleaved = false};
  std::vector<float> cos_sin;
  for (int64_t i = 0; i < n; ++i) {
    for (const double f : frequencies) {
      cos_sin.push_back(static_cast<float>(std::cos(f * static_cast<double>(i))));
    }
    for (const double f : frequencies) {
      cos_sin.push_back(static_cast<float>(std::sin(f * static_cast<double>(i))));
    }
  }
  backend_->Write(angles_.table, cos_sin);
}

void Harness::SetAngles(const std::vector<double>& frequencies) { MakeAngles(frequencies); }

void Harness::SetProjection(int model_dim, Projection projection) {
  class Made final : public OutputProjections {
   public:
    Made(int model_dim, Projection projection)
        : model_dim_(model_dim), projection_(std::move(projection)) {}
    int64_t model_dim() const override { return model_dim_; }
    void Read(int layer, int q_head, std::span<float> out) const override {
      const std::vector<float> made = projection_(layer, q_head);
      WINNOW_CHECK(made.size() == out.size());
      std::copy(made.begin(), made.end(), out.begin());
    }

   private:
    int model_dim_;
    Projection projection_;
  };
  projections_ = std::make_unique<Made>(model_dim, std::move(projection));
}

void Harness::SetReplay(int64_t n_rows, Weights weights, Norms norms, Passes passes) {
  n_replay_rows_ = n_rows;
  replay_weights_ = std::move(weights);
  replay_norms_ = std::move(norms);
  replay_passes_ = passes;
}

attention::Rows Harness::ReplayRows(int layer, int64_t first, int64_t n) const {
  attention::Rows rows;
  for (const int64_t row : attention::ChooseRows(method_->needs().replay.rows, n_replay_rows_)) {
    if (row < first || row >= first + n) continue;
    const auto position = static_cast<Position>(n_seen_ + row);
    rows.rows.push_back(row - first);
    rows.positions.push_back(position);
    for (int head = 0; head < config_.n_q_heads; ++head) {
      const std::vector<float> query = queries_(layer, head, position);
      rows.queries.insert(rows.queries.end(), query.begin(), query.end());
    }
    rows.norms.push_back(replay_norms_ ? static_cast<float>(replay_norms_(layer, row)) : 0.0f);
  }
  return rows;
}

void Harness::Replay() {
  const ReplaySpec spec = method_->needs().replay;
  replayed_ = spec.any() && n_replay_rows_ > 0 && n_seen_ > config_.budget;
  if (!replayed_) return;
  const std::vector<Position> of_call = tokens_;
  const int64_t n_passes = replay_passes_.n,
                n_repeated = std::ssize(of_call) - replay_passes_.first;
  weights_ = &replay_weights_;
  for (int64_t pass = 0; pass < n_passes; ++pass) {
    const int64_t first = pass * n_replay_rows_ / n_passes;
    const int64_t n = (pass + 1) * n_replay_rows_ / n_passes - first;
    const int64_t begin = pass * n_repeated / n_passes;
    tokens_.resize(static_cast<size_t>(n));
    std::iota(tokens_.begin(), tokens_.end(), static_cast<Position>(n_seen_ + first));
    for (int layer = 0; layer < config_.n_layers; ++layer) {
      std::unique_ptr<kernels::Storage> k, v;
      const kernels::Matrix keys = Write(keys_, config_.n_kv_heads, layer, k);
      const kernels::Matrix values = Write(values_, config_.n_kv_heads, layer, v);
      WINNOW_CHECK(cache_->Append(layer, keys, values, tokens_).has_value());
      const kernels::Taps taps = ComputeTaps(spec.taps, layer, first, n);
      const attention::Rows rows = ReplayRows(layer, first, n);
      LayerCall call = MakeCall(Phase::kPrefill, layer, taps);
      call.rows = &rows;
      call.rope = &angles_;
      call.scale = 1;
      call.replay = {.first = replay_passes_.first + begin,
                     .n = (pass + 1) * n_repeated / n_passes - begin};
      method_->ObserveReplay(call);
      cache_->TruncateLayer(layer, static_cast<Position>(n_seen_));
    }
  }
  tokens_ = of_call;
}

}  // namespace winnow::compression::testing
