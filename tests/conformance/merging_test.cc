#include <cmath>
#include <vector>

#include "fixture.h"

// docs/methods/semantics.md#invariants, 4: a merged row lies in the convex hull of its sources
// (D2O: keys and values; EMS: directions of keys, and values).
namespace winnow::conformance {
namespace {

using cache::HeadPlan;

double Norm(Engine& engine, const kernels::HeadRows& rows, cache::Slot row) {
  std::vector<float> values(static_cast<size_t>(rows.dim));
  engine.backend().ReadRows(rows, std::span(&row, 1), values);
  double squares = 0;
  for (const float x : values) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

class Merging : public ::testing::TestWithParam<std::string> {
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
    if (!directions_) {
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
        CheckWeights(merge, sources);
        if (directions_) CheckDirections(cache.keys(plan.layer, static_cast<int>(head)), sources);
        ++n_merges_;
      }
      EXPECT_TRUE(rest.empty());
    }
  }

  const bool directions_ = MethodName(GetParam()) == "ems";
  std::shared_ptr<Engine> engine_ = OpenTiny(2);
  int64_t n_merges_ = 0;
};

TEST_P(Merging, StaysInTheHullOfItsSources) {
  for (const int64_t chunk : {0, 16}) {
    CompressionOptions compression = {
        .method = *compression::MakeMethod(GetParam()), .size = 40, .prefill_chunk = chunk};
    compression.on_plan = [&](const cache::Plan& plan, const runtime::PlanContext& context) {
      Check(plan, context.cache);
    };
    n_merges_ = 0;
    const auto session = Session::Make(*engine_, {.context = 2048,
                                                  .key_type = kernels::TensorType::kF32,
                                                  .value_type = kernels::TensorType::kF32,
                                                  .compression = compression})
                             .value();
    ASSERT_TRUE(session->Prefill(Tokens(200)).value());
    const int64_t n_before = n_merges_;
    for (const TokenId token : Tokens(60, 3)) ASSERT_TRUE(session->Decode(token).has_value());
    EXPECT_GT(n_before, 0) << "in the prompt";
    EXPECT_GT(n_merges_, n_before) << "while generating";
  }
}

// The weights of d2o's merge=code (the authors' code) do not sum to one.
INSTANTIATE_TEST_SUITE_P(Methods, Merging,
                         ::testing::Values("d2o", "d2o:layer_policy=uniform", "d2o:similarity=both",
                                           "d2o:similarity=values", "d2o:merge=average",
                                           "d2o:into_sinks=false", "ems:window=8,tau=-1",
                                           "ems:window=8,tau=0.2,positions=original",
                                           "ems:window=8,tau=0.2,positions=baked",
                                           "custom:score=running_mean,select=pair,merge=next,"
                                           "recent=8,when=step"),
                         TestName);

}  // namespace
}  // namespace winnow::conformance
