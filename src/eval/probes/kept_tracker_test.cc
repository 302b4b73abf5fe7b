#include "eval/probes/kept_tracker.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "eval/probes/probe.h"
#include "kernels/backends.h"

namespace winnow::eval {
namespace {

constexpr cache::CacheShape kShape = {.n_layers = 1, .n_kv_heads = 2, .key_dim = 2, .value_dim = 2};

// A cache of six tokens, to which the tests apply plans.
class KeptTrackerTest : public testing::Test {
 protected:
  void Start(bool shared_rows) {
    backend_ = kernels::MakeReferenceBackend();
    cache_ = *cache::Cache::Make(*backend_, {.shape = kShape,
                                             .key_type = kernels::TensorType::kF32,
                                             .value_type = kernels::TensorType::kF32,
                                             .capacity = 16,
                                             .storage = {.shared_rows = shared_rows}});
    storage_ = *backend_->Allocate(6 * 4 * static_cast<int64_t>(sizeof(float)));
    const kernels::Matrix rows = {
        .storage = storage_.get(), .offset = 0, .rows = 6, .cols = 4, .stride = 4};
    std::vector<cache::Position> positions(6);
    std::iota(positions.begin(), positions.end(), 0);
    ASSERT_TRUE(cache_->Append(0, rows, rows, positions));
    options_ = tracker_.Following({});
  }
  // The plan of the first head.
  struct Change {
    std::vector<cache::Slot> evict = {};
    std::vector<cache::HeadPlan::Merge> merges = {};
    std::vector<cache::HeadPlan::Source> sources = {};
    std::vector<cache::HeadPlan::Share> shares = {};
  };
  void Apply(const Change& change, int64_t n_seen) {
    cache::HeadPlan first;
    first.evict = change.evict;
    first.merges = change.merges;
    first.sources = change.sources;
    first.shares = change.shares;
    const cache::Plan plan = {.layer = 0, .heads = {first, {}}};
    options_.on_plan(plan, {.cache = *cache_, .n_seen = n_seen});
    cache_->Apply(plan);
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Storage> storage_;
  std::unique_ptr<cache::Cache> cache_;
  KeptTracker tracker_;
  runtime::CompressionOptions options_;
};

TEST_F(KeptTrackerTest, TokensGoOneAfterAnother) {
  Start(/*shared_rows=*/false);
  Apply({.evict = {1}}, 6);
  // The newest entry, token 5, has moved into the slot of token 1.
  Apply({.evict = {1, 3}}, 8);
  tracker_.Close(*cache_, 7);
  EXPECT_EQ(tracker_.States(7)[0][0], "kekekee");  // token 6 was never stored
  EXPECT_EQ(tracker_.States(6)[0][1], "kkkkkk");   // the other head
  EXPECT_EQ(tracker_.evicted_at(0, 0, 1), 6);
  EXPECT_EQ(tracker_.Evictions(7)[0][0], (std::vector<int32_t>{-1, 6, -1, 8, -1, 8, 0}));
  EXPECT_EQ(tracker_.evicted_at(0, 0, 5), 8);
  EXPECT_EQ(tracker_.evicted_at(0, 0, 0), KeptTracker::kStays);
  EXPECT_EQ(tracker_.evicted_at(0, 0, 6), KeptTracker::kNeverStored);
}

TEST_F(KeptTrackerTest, MergedAreThoseThatFlowIntoAnother) {
  Start(/*shared_rows=*/false);
  // Token 2 is merged into token 0, which is a source too; token 4 is evicted without a merge.
  Apply({.evict = {2, 4},
         .merges = {{.into = 0, .n_sources = 2}},
         .sources = {{.row = 0, .key_weight = .5F, .value_weight = .5F},
                     {.row = 2, .key_weight = .5F, .value_weight = .5F}}},
        6);
  EXPECT_EQ(tracker_.States(6)[0][0], "kkmkek");
}

TEST_F(KeptTrackerTest, EntriesOfASharedRowAreMergedUntilTheyGo) {
  Start(/*shared_rows=*/true);
  Apply({.shares = {{.slot = 0, .row = 0, .factor = 2},
                    {.slot = 3, .row = 0, .factor = 1},
                    {.slot = 4, .row = 0, .factor = 1}}},
        6);
  EXPECT_EQ(tracker_.States(6)[0][0], "kkkmmk");
  Apply({.evict = {4}}, 7);
  EXPECT_EQ(tracker_.States(6)[0][0], "kkkmek");
}

}  // namespace
}  // namespace winnow::eval
