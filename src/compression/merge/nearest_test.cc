#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "compression/merge/merge.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::merge {
namespace {

using Weighting = NearestConfig::Weighting;

// Evicts the given ranks through the merger.
class EvictThese final : public Method {
 public:
  explicit EvictThese(const NearestConfig& config) : merger_(Nearest(config)) {}
  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return merger_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (ranks.empty()) return;
    Plan& plan = plans.Add(call.layer, 1);
    merger_->Merge({.call = call, .protected_entries = {.sinks = n_sinks}, .evicted = {&ranks, 1}},
                   plan);
    for (const int32_t rank : ranks) {
      plan.heads[0].evict.push_back(call.order(0)[static_cast<size_t>(rank)]);
    }
  }

  std::vector<int32_t> ranks;
  int64_t n_sinks = 0;

 private:
  MergerPtr merger_;
  Traits traits_;
};

class NearestTest : public ::testing::Test {
 protected:
  void Use(const NearestConfig& config) {
    method_ = std::make_shared<EvictThese>(config);
    harness_ = std::make_unique<testing::Harness>(method_, testing::HarnessConfig{});
    harness_->SetKeys([this](int, int, Position t) { return keys_.at(static_cast<size_t>(t)); });
    harness_->SetValues(
        [this](int, int, Position t) { return values_.at(static_cast<size_t>(t)); });
  }
  // Appends the vectors that are not in the cache yet, and evicts.
  void Evict(std::vector<int32_t> ranks) {
    method_->ranks = std::move(ranks);
    const auto n = static_cast<int64_t>(keys_.size()) - harness_->n_seen();
    harness_->Prefill(n, [](const testing::Cell&) { return 0.0; });
  }
  void Expect(int64_t rank, std::vector<float> key, std::vector<float> value) {
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(harness_->Key(rank)[i], key[i], 1e-6) << "key of rank " << rank;
      EXPECT_NEAR(harness_->Value(rank)[i], value[i], 1e-6) << "value of rank " << rank;
    }
  }
  double Tau(int which = 0) {
    return harness_->cache().head_numbers(0, 0)[static_cast<size_t>(2 * which + 1)];
  }

  std::vector<std::vector<float>> keys_, values_;
  std::shared_ptr<EvictThese> method_;
  std::unique_ptr<testing::Harness> harness_;
};

// docs/methods/semantics.md#d2o, the worked example: three conserved entries, three evicted.
TEST_F(NearestTest, OnlySimilaritiesAboveTheMeanMerge) {
  keys_ = {{1, 0}, {0, 2}, {1, 1}, {2, 0}, {1, -0.2f}, {0.2f, 1}};
  values_ = {{1, 1}, {2, 0}, {0, 3}, {0, 1}, {4, 4}, {1, 0}};
  Use({});
  Evict({3, 4, 5});
  EXPECT_EQ(harness_->Kept(), (std::vector<Position>{0, 1, 2}));
  EXPECT_NEAR(Tau(), 0.987054, 1e-6);
  Expect(0, {1.5f, 0}, {0.5f, 1});
  Expect(1, {0, 2}, {2, 0});
  Expect(2, {1, 1}, {0, 3});

  // The next evicted entry has u = .95 with the first one: dropped.
  keys_.push_back({0.95f, -std::sqrt(1 - 0.95f * 0.95f)});
  values_.push_back({7, 7});
  Evict({3});
  EXPECT_NEAR(Tau(), 0.968527, 1e-6);
  Expect(0, {1.5f, 0}, {0.5f, 1});
}

// The nearest entry is a sink; if sinks are spared, the evicted entry merges into the next one.
TEST_F(NearestTest, SinksCanBeSpared) {
  for (const bool into_sinks : {true, false}) {
    keys_ = {{1, 0}, {1, 1}, {2, 0}};
    values_ = {{1, 1}, {0, 3}, {3, 3}};
    Use({.into_sinks = into_sinks});
    method_->n_sinks = 1;
    Evict({2});
    const double u = into_sinks ? 1 : std::sqrt(0.5);
    const double part = std::exp(u) / (std::exp(1) + std::exp(u));
    const auto mix = [&](float stays, float goes) {
      return static_cast<float>((1 - part) * stays + part * goes);
    };
    if (into_sinks) {
      Expect(0, {mix(1, 2), 0}, {mix(1, 3), mix(1, 3)});
      Expect(1, {1, 1}, {0, 3});
    } else {
      Expect(0, {1, 0}, {1, 1});
      Expect(1, {mix(1, 2), mix(1, 0)}, {mix(0, 3), mix(3, 3)});
    }
  }
}

// docs/methods/semantics.md#d2o: two tokens into one target.
TEST_F(NearestTest, TwoIntoOne) {
  keys_ = {{1, 0}, {2, 0}, {1, 1}};
  values_ = {{1, 1}, {0, 1}, {4, 4}};
  Use({});
  // The threshold of the example accepts both: an earlier entry was very dissimilar.
  Evict({});
  harness_->cache().head_numbers(0, 0)[0] = 1;
  harness_->cache().head_numbers(0, 0)[1] = -1;
  Evict({1, 2});
  Expect(0, {1.364153f, 0.271695f}, {1.450932f, 1.815085f});
}

TEST_F(NearestTest, TheFirstAloneMerges) {
  keys_ = {{1, 0}, {0, 1}, {-1, 0.5f}};
  values_ = {{1, 0}, {0, 1}, {1, 1}};
  Use({});
  Evict({2});  // u = .447 with the second
  const double u = 0.5 / std::sqrt(1.25);
  const double own = std::exp(1) / (std::exp(1) + std::exp(u));
  EXPECT_NEAR(Tau(), u, 1e-6);
  Expect(0, {1, 0}, {1, 0});
  Expect(1, {static_cast<float>(own - 1), static_cast<float>(own + 0.5 * (1 - own))},
         {static_cast<float>(1 - own), 1});
}

TEST_F(NearestTest, ZeroKeysAreLikeNothing) {
  keys_ = {{0, 0}, {1, 0}, {0, 0}};
  values_ = {{1, 0}, {0, 1}, {1, 1}};
  Use({.weighting = Weighting::kAverage});
  Evict({2});
  EXPECT_EQ(Tau(), 0);  // and among equal similarities the oldest target wins
  Expect(0, {0, 0}, {1, 0.5f});
  Expect(1, {1, 0}, {0, 1});
}

TEST_F(NearestTest, CodeScalesAndAverages) {
  keys_ = {{1, 0}, {1, 1}};
  values_ = {{1, 1}, {4, 4}};
  Use({.weighting = Weighting::kCode});
  Evict({1});
  const auto u = static_cast<float>(std::sqrt(0.5));
  Expect(0, {(1 + u) / 2, u / 2}, {(1 + 4 * u) / 2, (1 + 4 * u) / 2});
}

TEST_F(NearestTest, ByValues) {
  keys_ = {{1, 0}, {0, 1}, {1, 0}};
  values_ = {{0, 1}, {1, 0}, {3, 0}};
  Use({.weighting = Weighting::kAverage, .similarity = NearestConfig::Similarity::kValues});
  Evict({2});
  Expect(0, {1, 0}, {0, 1});
  Expect(1, {0.5f, 0.5f}, {2, 0});
}

TEST_F(NearestTest, KeysAndValuesGoTheirOwnWays) {
  keys_ = {{1, 0}, {0, 1}, {3, 0}};
  values_ = {{0, 1}, {1, 0}, {3, 0}};
  Use({.weighting = Weighting::kAverage, .similarity = NearestConfig::Similarity::kBoth});
  Evict({2});
  Expect(0, {2, 0}, {0, 1});
  Expect(1, {0, 1}, {2, 0});
  EXPECT_EQ(Tau(0), 1);
  EXPECT_EQ(Tau(1), 1);
}

// After an eviction slots are in no order: the oldest entry still wins.
TEST_F(NearestTest, OfEqualTargetsTheOldest) {
  keys_ = {{1, 0}, {0, 1}, {1, 0}, {0, 1}};
  values_ = {{0, 0}, {1, 0}, {0, 0}, {7, 0}};
  Use({.weighting = Weighting::kAverage});
  Evict({0});
  ASSERT_EQ(harness_->cache().order(0, 0)[0], 1);
  ASSERT_EQ(harness_->cache().order(0, 0)[2], 0);
  keys_.push_back({0, 1});
  values_.push_back({5, 0});
  Evict({3});
  Expect(0, {0, 1}, {3, 0});
  Expect(2, {0, 1}, {7, 0});
}

// Evicts the given ranks from every head.
class EvictFromHeads final : public Method {
 public:
  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return merger_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    merger_->Merge({.call = call, .protected_entries = {}, .evicted = ranks}, plan);
    for (size_t head = 0; head < ranks.size(); ++head) {
      for (const int32_t rank : ranks[head]) {
        plan.heads[head].evict.push_back(
            call.order(static_cast<int>(head))[static_cast<size_t>(rank)]);
      }
    }
  }

  std::vector<std::vector<int32_t>> ranks;  // [kv_head]

 private:
  MergerPtr merger_ = Nearest({});
  Traits traits_;
};

// More heads than are searched together, with none, one or several evictions each.
TEST(NearestHeads, EachIsAsAlone) {
  constexpr int kHeads = 37;
  const auto key = [](int head, Position t) { return testing::RandomVector({head, t}, 2); };
  const auto run = [&](const std::vector<int>& heads, int max) {
    const auto method = std::make_shared<EvictFromHeads>();
    const auto n_heads = static_cast<int>(heads.size());
    testing::Harness h(method, {.n_q_heads = n_heads, .n_kv_heads = n_heads});
    h.SetKeys([&](int, int head, Position t) { return key(heads[static_cast<size_t>(head)], t); });
    for (const int head : heads) {
      std::vector<int32_t>& ranks = method->ranks.emplace_back();
      for (int rank = 0; rank < head % (max + 1); ++rank) ranks.push_back(2 * rank + 1);
    }
    h.Prefill(9, [](const testing::Cell&) { return 0.0; });
    std::vector<std::vector<float>> keys;  // of all heads
    for (int head = 0; head < n_heads; ++head) {
      for (size_t rank = 0; rank < h.Kept(0, head).size(); ++rank) {
        keys.push_back(h.Key(static_cast<int64_t>(rank), 0, head));
      }
    }
    return keys;
  };
  for (const int max : {1, 3}) {
    std::vector<int> all(kHeads);
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<float>> alone;
    for (const int head : all) {
      const auto keys = run({head}, max);
      alone.insert(alone.end(), keys.begin(), keys.end());
    }
    EXPECT_EQ(run(all, max), alone);
  }
}

}  // namespace
}  // namespace winnow::compression::merge
