#include <cmath>
#include <map>
#include <vector>

#include "base/rng.h"
#include "base/sanitizer.h"
#include "base/thread_pool.h"
#include "fixture.h"
#include "kernels/backends.h"

// Attention after Apply equals attention over the full cache with the evicted entries masked, for
// methods that neither merge nor reassign positions, on every target.
namespace winnow::conformance {
namespace {

using cache::Position;
using kernels::HeadRows;
using kernels::Matrix;

constexpr int kDim = 16;

// The stored key or value of every text position.
std::map<Position, std::vector<float>> ReadRows(Session& session, const HeadRows& rows, int layer,
                                                int head) {
  std::map<Position, std::vector<float>> by_position;
  const auto positions = session.cache().positions(layer, head);
  for (size_t slot = 0; slot < positions.size(); ++slot) {
    const auto row = static_cast<int32_t>(slot);
    std::vector<float> values(static_cast<size_t>(rows.dim));
    session.engine().backend().ReadRows(rows, std::span(&row, 1), values);
    by_position[positions[slot]] = values;
  }
  return by_position;
}

// Plain softmax over the kept positions of the full cache.
std::vector<double> Masked(const std::map<Position, std::vector<float>>& keys,
                           const std::map<Position, std::vector<float>>& values,
                           const std::vector<Position>& kept, const float* q, double scale) {
  std::vector<double> weights;
  double sum = 0;
  for (const Position position : kept) {
    double dot = 0;
    for (size_t i = 0; i < kDim; ++i) dot += static_cast<double>(q[i]) * keys.at(position)[i];
    weights.push_back(std::exp(dot * scale));
    sum += weights.back();
  }
  std::vector<double> out(kDim, 0.0);
  for (size_t j = 0; j < kept.size(); ++j) {
    for (size_t i = 0; i < kDim; ++i) out[i] += weights[j] / sum * values.at(kept[j])[i];
  }
  return out;
}

// Compares attention of random queries over a layer of `session` with attention over the same
// entries of `full`. False: a kept entry was changed (merging).
bool IsMasked(Session& session, Session& full, int layer) {
  Rng rng(3);
  std::vector<float> q(4 * kDim);
  for (float& x : q) x = static_cast<float>(rng.Uniform() * 4 - 2);
  kernels::Backend& backend = session.engine().backend();
  const auto memory = backend.Allocate(2 * 4 * kDim * 4).value();
  const Matrix q_matrix = {memory.get(), 0, 1, 4 * kDim, 4 * kDim};
  const Matrix out_matrix = {memory.get(), 4 * kDim, 1, 4 * kDim, 4 * kDim};
  backend.Write(q_matrix, q);
  const float scale = 0.25f;
  backend.Attend({.q = q_matrix,
                  .out = out_matrix,
                  .n_q_heads = 4,
                  .key_dim = kDim,
                  .value_dim = kDim,
                  .key_type = kernels::TensorType::kF32,
                  .value_type = kernels::TensorType::kF32,
                  .scale = scale,
                  .heads = session.cache().Heads(layer),
                  .entries = {},
                  .taps = {},
                  .found = nullptr});
  std::vector<float> out(4 * kDim);
  backend.Read(out_matrix, out);
  const int n_heads = NHeads(session);
  const int group = 4 / n_heads;
  for (int head = 0; head < n_heads; ++head) {
    const int of_full = head * NHeads(full) / n_heads;
    const auto keys = ReadRows(full, full.cache().keys(layer, of_full), layer, of_full);
    const auto values = ReadRows(full, full.cache().values(layer, of_full), layer, of_full);
    const std::vector<Position> kept = Kept(session, layer, head);
    std::map<Position, std::vector<float>> expected_values;
    for (const Position position : kept) expected_values[position] = values.at(position);
    if (ReadRows(session, session.cache().values(layer, head), layer, head) != expected_values) {
      return false;
    }
    for (int q_head = group * head; q_head < group * (head + 1); ++q_head) {
      const std::vector<double> expected =
          Masked(keys, values, kept, q.data() + q_head * kDim, scale);
      for (size_t i = 0; i < kDim; ++i) {
        EXPECT_NEAR(out[static_cast<size_t>(q_head * kDim) + i], expected[i], 1e-5)
            << "layer " << layer << ", query head " << q_head;
      }
    }
  }
  return true;
}

class MaskedAttention : public ::testing::TestWithParam<std::string> {};

TEST_P(MaskedAttention, EqualsAttentionOverTheKept) {
  const compression::Traits traits = MethodTraits(GetParam());
  if (traits.storage.positions != cache::PositionMode::kOriginal || traits.storage.shared_rows) {
    GTEST_SKIP() << "skipped: positions or rows are not those of the text";
  }
  if (traits.rows == compression::RowPolicy::kKept)
    GTEST_SKIP() << "skipped: later layers see other tokens";
  const bool may_merge =
      compression::MethodPromise(GetParam(), 150).value().merging != compression::Merging::kNone;
  std::vector<std::string> targets = kernels::CpuTargets();
#ifdef WINNOW_SANITIZES_MEMORY  // tests of the kernels reach the others
  targets.resize(1);
#endif
  targets.emplace_back("reference");
  for (const std::string& target : targets) {
    SCOPED_TRACE(target);
    const auto engine = OpenTiny(2, kThreads, kDim, target);
    const auto full = Open(*engine, "", {.type = kernels::TensorType::kF32});
    const auto session =
        Open(*engine, GetParam(),
             {.size = std::max<int64_t>(40, traits.budget.min), .type = kernels::TensorType::kF32});
    ASSERT_TRUE(full->Prefill(Tokens(150)).value());
    ASSERT_TRUE(session->Prefill(Tokens(150)).value());
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(IsMasked(*session, *full, layer) || may_merge) << "an entry was changed";
    }
    // In decode steps, layers after the first depend on attention over the kept entries: compare
    // the first only.
    for (const TokenId token : Tokens(20, 3)) {
      ASSERT_TRUE(full->Decode(token).has_value());
      ASSERT_TRUE(session->Decode(token).has_value());
      EXPECT_TRUE(IsMasked(*session, *full, 0) || may_merge) << "an entry was changed";
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, MaskedAttention, ::testing::ValuesIn(MethodsAndVariants()),
                         TestName);

}  // namespace
}  // namespace winnow::conformance
