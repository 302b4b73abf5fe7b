#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "fixture.h"

// docs/methods/semantics.md#invariants, 4: a merged row lies in the convex hull of its sources, as
// far as the method promises it.
namespace winnow::conformance {
namespace {

using cache::HeadPlan;
using compression::Merging;

double Norm(Engine& engine, const kernels::HeadRows& rows, cache::Slot row) {
  std::vector<float> values(static_cast<size_t>(rows.dim));
  engine.backend().ReadRows(rows, std::span(&row, 1), values);
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

class EveryMethodMerges : public ::testing::TestWithParam<std::string> {
 protected:
  // The weights of one merge are non-negative and sum to one, and the target is a source.
  void CheckWeights(const HeadPlan::Merge& merge, std::span<const HeadPlan::Source> sources) {
    double keys = 0, values = 0;
    bool has_target = false;
    for (const HeadPlan::Source& source : sources) {
      ASSERT_GE(source.key_weight, 0);
      ASSERT_GE(source.value_weight, 0);
      keys += source.key_weight;
      values += source.value_weight;
      has_target = has_target || source.row == merge.into;
    }
    EXPECT_TRUE(has_target);
    EXPECT_NEAR(values, 1, 1e-5);
    if (merging_ == Merging::kHull) {
      EXPECT_NEAR(keys, 1, 1e-5);
    }
  }

  // If directions are merged, a key's weight is the value's weight divided by the key's norm. A key
  // merged before is a mean of directions, with a norm of at most one.
  void CheckDirections(const kernels::HeadRows& keys, std::span<const HeadPlan::Source> sources) {
    for (const HeadPlan::Source& source : sources) {
      if (source.value_weight == 0) {
        EXPECT_EQ(source.key_weight, 0);
        continue;
      }
      const double length = Norm(*engine_, keys, source.row) *
                            static_cast<double>(source.key_weight / source.value_weight);
      EXPECT_LE(length, 1 + 1e-4);
      EXPECT_GT(length, 0);
    }
  }

  void Check(const cache::Plan& plan, const cache::Cache& cache) {
    for (size_t head = 0; head < plan.heads.size(); ++head) {
      std::span<const HeadPlan::Source> rest = plan.heads[head].sources;
      for (const HeadPlan::Merge& merge : plan.heads[head].merges) {
        const auto sources = rest.first(static_cast<size_t>(merge.n_sources));
        rest = rest.subspan(sources.size());
        ++n_merges_;
        if (!PromisesHull()) continue;
        CheckWeights(merge, sources);
        if (merging_ == Merging::kDirectionHull)
          CheckDirections(cache.keys(plan.layer, static_cast<int>(head)), sources);
      }
      EXPECT_TRUE(rest.empty());
    }
  }

  void Run(const std::string& spec, int64_t chunk) {
    const auto method = *compression::MakeMethod(spec);
    CompressionOptions compression = {.method = method, .prefill_chunk = chunk};
    if (method->traits().budget.needed) compression.size = 40;
    compression.on_plan = [&](const cache::Plan& plan, const runtime::PlanContext& context) {
      Check(plan, context.cache);
    };
    merging_ = compression::MethodPromise(spec, 40).value().merging;
    const auto session = Session::Make(*engine_, {.context = 2048,
                                                  .key_type = kernels::TensorType::kF32,
                                                  .value_type = kernels::TensorType::kF32,
                                                  .compression = compression})
                             .value();
    ASSERT_TRUE(session->Prefill(Tokens(200)).value());
    evicts_ = TotalSlots(*session) < session->n_tokens() * 3 * NHeads(*session);
    n_in_prompts_ += std::exchange(n_merges_, 0);
    for (const TokenId token : Tokens(60, 3)) ASSERT_TRUE(session->Decode(token).has_value());
    n_in_steps_ += std::exchange(n_merges_, 0);
  }

  bool PromisesHull() const {
    return merging_ == Merging::kHull || merging_ == Merging::kDirectionHull;
  }

  Merging merging_ = Merging::kNone;
  bool evicts_ = false;
  std::shared_ptr<Engine> engine_ = OpenTiny(2);
  int64_t n_merges_ = 0;
  int64_t n_in_prompts_ = 0, n_in_steps_ = 0;  // of all runs
};

TEST_P(EveryMethodMerges, AsItPromises) {
  for (const int64_t chunk : {0, 16}) Run(GetParam(), chunk);
  if (merging_ == Merging::kNone) {
    EXPECT_EQ(n_in_prompts_ + n_in_steps_, 0);
  }
  if (!PromisesHull() || !evicts_) return;
  EXPECT_GT(n_in_prompts_, 0);
  if (MethodTraits(GetParam()).decisions.evicts_in_decode) {
    EXPECT_GT(n_in_steps_, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethodMerges, ::testing::ValuesIn(MethodsAndVariants()),
                         TestName);

}  // namespace
}  // namespace winnow::conformance
