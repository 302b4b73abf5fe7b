#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/first_and_newest.h"
#include "compression/testing/harness.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Kept = std::vector<Position>;

TEST(LmInfiniteTest, TheFirstAndTheNewest) {
  Harness h(testing::Make(LmInfinite(), "sinks=2,distance=64"), {.budget = 6});
  h.Prefill(10, [](const Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 6, 7, 8, 9}));
  h.Decode([](const Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 7, 8, 9, 10}));
}

TEST(LmInfiniteTest, DistancesAreCapped) {
  const Traits traits = testing::Make(LmInfinite(), "distance=64")->traits();
  EXPECT_EQ(traits.storage.positions, PositionMode::kCapped);
  EXPECT_EQ(traits.storage.distance_cap, 64);
  EXPECT_EQ(testing::Make(LmInfinite())->traits().storage.distance_cap, 0) << "the model's own";
  EXPECT_EQ(testing::Make(LmInfinite())->needs(), Needs()) << "no attention, no state";
}

// Records the distance from the newest token at which attention sees each entry.
class Watched final : public Method {
 public:
  explicit Watched(MethodPtr method) : method_(std::move(method)) {}
  const Traits& traits() const override { return method_->traits(); }
  Needs needs() const override { return method_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    distances.clear();
    if (!call.cache.keys_rotated(0)) {
      const kernels::HeadEntries entries = call.cache.Entries(0, 1)[0];
      for (const Slot slot : call.order(0)) {
        distances.push_back(entries.query_position - entries.positions[static_cast<size_t>(slot)]);
      }
    }
    method_->Decide(call, plans);
  }

  mutable std::vector<int32_t> distances;

 private:
  MethodPtr method_;
};

// The position rule: first tokens beyond the cap all have the same distance.
TEST(LmInfiniteTest, DistancesStopAtTheCap) {
  const auto method = std::make_shared<Watched>(testing::Make(LmInfinite(), "sinks=2,distance=3"));
  Harness h(method, {.budget = 5});
  for (int step = 0; step < 9; ++step) h.Decode([](const Cell&) { return 0.0; });
  // Tokens 0, 1, 5, 6, 7 and the query's own, 8.
  EXPECT_EQ(method->distances, (std::vector<int32_t>{3, 3, 3, 2, 1, 0}));
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 6, 7, 8}));
}

TEST(LmInfiniteTest, AgreesWithTheClosedForm) {
  testing::ExpectFirstAndNewest(LmInfinite(), "", 10);
  for (const int sinks : {0, 1, 4, 100}) {
    testing::ExpectFirstAndNewest(LmInfinite(), "distance=20,sinks=" + std::to_string(sinks),
                                  sinks);
  }
}

// Beyond the budget, every query sees every entry at min(its distance in the text, the cap).
TEST(LmInfiniteTest, DistancesAreThoseOfTheTextUpToTheCap) {
  for (const int sinks : {0, 1, 5}) {
    for (const int64_t budget : {1, 6, 17}) {
      for (const int32_t cap : {1, 4, 30, 1000}) {
        const auto method = std::make_shared<Watched>(testing::Make(
            LmInfinite(), "sinks=" + std::to_string(sinks) + ",distance=" + std::to_string(cap)));
        Harness h(method, {.budget = budget});
        h.Prefill(23, [](const Cell&) { return 0.0; });
        for (Position query = 23; query < 80; ++query) {
          std::vector<int32_t> expected;
          for (const Position p : testing::FirstAndNewest(query, budget, sinks)) {
            expected.push_back(std::min<int32_t>(query - p, cap));
          }
          expected.push_back(0);  // the query's own entry
          h.Decode([](const Cell&) { return 0.0; });
          ASSERT_EQ(method->distances, expected)
              << "sinks " << sinks << " budget " << budget << " cap " << cap;
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression::methods
