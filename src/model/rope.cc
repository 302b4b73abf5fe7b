#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace winnow::model {
namespace {

// Positions covered beyond those in use; also rows computed at a time on the host.
constexpr int64_t kPositionsAhead = 1024;

// The (fractional) pair that rotates `rotations` times over the original context (YaRN,
// arXiv:2309.00071, section 3.2).
double PairOfRotations(const RopeParameters& rope, double rotations) {
  const double context = static_cast<double>(rope.original_context);
  return rope.n_rotated * std::log(context / (2 * std::numbers::pi * rotations)) /
         (2 * std::log(rope.base));
}

// Weight of the unscaled angle of pair `pair`, relative to the scaled one: yarn_ext_factor for fast
// pairs, 0 for slow ones.
double YarnMix(const RopeParameters& rope, int pair) {
  const double low = std::max(0.0, std::floor(PairOfRotations(rope, rope.yarn_beta_fast)));
  const double high =
      std::min(rope.n_rotated - 1.0, std::ceil(PairOfRotations(rope, rope.yarn_beta_slow)));
  const double ramp = std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
  return rope.yarn_ext_factor * (1 - ramp);
}

}  // namespace

std::vector<double> RopeAngles(const RopeParameters& rope, int64_t context) {
  const std::vector<float>& factors =
      context > rope.original_context && !rope.frequency_factors_long.empty()
          ? rope.frequency_factors_long
          : rope.frequency_factors;
  const int n_pairs = rope.n_rotated / 2;
  WINNOW_CHECK(factors.empty() || factors.size() == static_cast<size_t>(n_pairs));
  std::vector<double> angles(static_cast<size_t>(n_pairs));
  for (int pair = 0; pair < n_pairs; ++pair) {
    double angle = std::pow(rope.base, -2.0 * pair / rope.n_rotated);
    if (!factors.empty()) angle /= static_cast<double>(factors[static_cast<size_t>(pair)]);
    const double scaled = angle / rope.factor;
    const double mix = rope.scaling == RopeParameters::Scaling::kYarn ? YarnMix(rope, pair) : 0.0;
    angles[static_cast<size_t>(pair)] = scaled * (1 - mix) + angle * mix;
  }
  return angles;
}

double RopeMagnitude(const RopeParameters& rope) {
  const bool yarn = rope.scaling == RopeParameters::Scaling::kYarn && rope.yarn_ext_factor != 0;
  return rope.attention_factor * (yarn ? 1 + 0.1 * std::log(rope.factor) : 1);
}

RopePositions::RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context,
                             int64_t n_positions)
    : backend_(backend),
      context_(context),
      max_positions_(n_positions),
      angles_(RopeAngles(rope, context)),
      magnitude_(RopeMagnitude(rope)),
      form_{.table = {}, .n_rotated = rope.n_rotated, .interleaved = rope.interleaved} {}

Result<std::shared_ptr<const kernels::RopeTable>> RopePositions::Cover(int64_t n_positions) {
  WINNOW_CHECK(n_positions <= max_positions_);
  const std::lock_guard lock(mutex_);
  const int64_t n_covered = covered_ == nullptr ? 0 : covered_->table.table.rows;
  if (covered_ == nullptr || n_positions > n_covered) {
    // Doubling keeps the cost per position constant, without computing a long context in advance
    // that may never be used.
    const int64_t n_rows = std::min(std::max(context_, n_positions),
                                    std::max(n_positions + kPositionsAhead, 2 * n_covered));
    WINNOW_ASSIGN(covered_, Make(n_rows));
  }
  return std::shared_ptr<const kernels::RopeTable>(covered_, &covered_->table);
}

Result<std::shared_ptr<const RopePositions::Owned>> RopePositions::Make(int64_t n_rows) const {
  const int64_t n_cols = 2 * static_cast<int64_t>(angles_.size());
  WINNOW_ASSIGN(std::unique_ptr<kernels::Storage> storage,
                backend_.Allocate(n_rows * n_cols * static_cast<int64_t>(sizeof(float))));
  const kernels::Matrix table = {
      .storage = storage.get(), .offset = 0, .rows = n_rows, .cols = n_cols, .stride = n_cols};

  std::vector<float> block;
  for (int64_t first = 0; first < n_rows; first += kPositionsAhead) {
    const int64_t n = std::min(kPositionsAhead, n_rows - first);
    block.resize(static_cast<size_t>(n * n_cols));
    for (int64_t row = 0; row < n; ++row) {
      float* cos_row = block.data() + row * n_cols;
      float* sin_row = cos_row + angles_.size();
      for (size_t pair = 0; pair < angles_.size(); ++pair) {
        const double angle = static_cast<double>(first + row) * angles_[pair];
        cos_row[pair] = static_cast<float>(std::cos(angle) * magnitude_);
        sin_row[pair] = static_cast<float>(std::sin(angle) * magnitude_);
      }
    }
    backend_.Write(table.Rows(first, n), block);
  }
  auto owned = std::make_shared<Owned>(Owned{.storage = std::move(storage), .table = form_});
  owned->table.table = table;
  return std::shared_ptr<const Owned>(std::move(owned));
}

int64_t RopePositions::bytes(int64_t n_positions) const {
  const int64_t n_rows =
      std::min(std::max(context_, n_positions),
               std::max(n_positions + kPositionsAhead, 2 * std::max<int64_t>(0, n_positions - 1)));
  return n_rows * 2 * static_cast<int64_t>(angles_.size()) * static_cast<int64_t>(sizeof(float));
}

}  // namespace winnow::model
