#include "cache/index/list_views.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "cache/index/layer_index.h"

namespace winnow::cache {
namespace {

using Ints = std::vector<int32_t>;
Ints List(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

class ListViewsTest : public ::testing::Test {
 protected:
  static constexpr size_t kHeads = 3;

  void Append(int layer, Position first, int n) {
    Ints positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), first);
    index(layer).Append(positions);
    views_.CoverEntries(index(layer).head(0).size());
  }
  void Evict(int layer, const std::vector<std::vector<Slot>>& slots) {
    Plan plan = {.layer = layer, .heads = std::vector<HeadPlan>(kHeads)};
    for (size_t head = 0; head < kHeads; ++head) plan.heads[head].evict = slots[head];
    index(layer).PrepareFor(plan);
    for (size_t list = 0; list < index(layer).lists().size(); ++list) {
      index(layer).Evict(list, slots[list], moves_, ranks_);
    }
  }
  LayerIndex& index(int layer) { return layers_[static_cast<size_t>(layer)]; }
  ListViews::Source Layer(int layer) { return {.layer = layer, .index = &index(layer)}; }

  std::vector<LayerIndex> layers_ = {LayerIndex(kHeads), LayerIndex(kHeads)};
  ListViews views_{kHeads};
  Moves moves_;
  std::vector<int32_t> ranks_;
};

TEST_F(ListViewsTest, WhatWasNotEvictedFromIsOneAscendingListForAll) {
  Append(0, 0, 4);
  Append(1, 0, 6);
  const auto order = views_.Order(Layer(0), 0);
  EXPECT_EQ(List(order), (Ints{0, 1, 2, 3}));
  EXPECT_EQ(views_.Order(Layer(1), 2).data(), order.data());
  EXPECT_EQ(views_.Positions(Layer(1), 2).data(), order.data());
  EXPECT_EQ(views_.Ranks(Layer(0), 1).data(), order.data());
}

TEST_F(ListViewsTest, HeadsThatLoseTheSameShareAList) {
  Append(0, 0, 6);
  Evict(0, {{1, 2}, {1, 2}, {1, 2}});
  EXPECT_TRUE(index(0).shared());
  EXPECT_EQ(List(views_.Order(Layer(0), 2)), (Ints{0, 3, 1, 2}));
  EXPECT_EQ(List(views_.Positions(Layer(0), 2)), (Ints{0, 4, 5, 3}));
  EXPECT_EQ(List(views_.Ranks(Layer(0), 0)), (Ints{0, 2, 3, 1}));
  index(0).ShrinkToFit(0);
  EXPECT_EQ(index(0).allocated_bytes(), 4 * 4 + 8);
  EXPECT_EQ(index(0).allocated_bytes(0) + 2 * index(0).allocated_bytes(1), 4 * 4 + 8);
  // The same slots in another order cause other moves.
  Evict(0, {{0}, {0}, {1}});
  EXPECT_FALSE(index(0).shared());
  EXPECT_EQ(List(views_.Positions(Layer(0), 1)), (Ints{3, 4, 5}));
  EXPECT_EQ(List(views_.Positions(Layer(0), 2)), (Ints{0, 3, 5}));
  Evict(0, {{0, 1, 2}, {2, 1, 0}, {0, 1, 2}});
  index(0).ShareIfEmpty();
  EXPECT_TRUE(index(0).shared());
}

TEST_F(ListViewsTest, AViewIsMadeAgainWhenItsLayerChangesOrAnotherTakesItsMemory) {
  Append(0, 0, 5);
  Append(1, 0, 5);
  Evict(0, {{0}, {1}, {2}});
  Evict(1, {{3}, {2}, {1}});
  EXPECT_EQ(List(views_.Order(Layer(0), 1)), (Ints{0, 2, 3, 1}));
  EXPECT_EQ(List(views_.Order(Layer(1), 1)), (Ints{0, 1, 3, 2}));
  EXPECT_EQ(List(views_.Order(Layer(0), 1)), (Ints{0, 2, 3, 1}));
  Append(0, 5, 1);
  EXPECT_EQ(List(views_.Order(Layer(0), 1)), (Ints{0, 2, 3, 1, 4}));
  views_.Trim(5);
  EXPECT_EQ(List(views_.Order(Layer(0), 1)), (Ints{0, 2, 3, 1, 4}));
}

TEST_F(ListViewsTest, CappedDistancesAreOfTheQueryThatAsks) {
  Append(0, 0, 3);
  Append(0, 20, 2);
  const auto capped = [&](Position query) {
    return List(views_.Capped(Layer(0), 0, {.query = query, .cap = 10, .query_position = 10}));
  };
  EXPECT_EQ(capped(21), (Ints{0, 0, 0, 9, 10}));
  EXPECT_EQ(capped(20), (Ints{0, 0, 0, 10, 11}));
}

TEST_F(ListViewsTest, MemoryOfALongPromptGoesBack) {
  Append(0, 0, 100000);
  EXPECT_EQ(views_.Order(Layer(0), 0).size(), 100000u);
  Ints many(99000);
  std::iota(many.begin(), many.end(), 0);
  Evict(0, {many, many, many});
  views_.Trim(1000);
  EXPECT_EQ(List(views_.Order(Layer(0), 0)).size(), 1000u);
  EXPECT_EQ(views_.Positions(Layer(0), 0)[0], 99000);
  EXPECT_LT(views_.allocated_bytes(), 2 * 2 * 1000 * 4);
}

// Methods decide about several heads at a time, and the heads of a fresh prompt share one list.
TEST_F(ListViewsTest, ThreadsThatAskForOneListGetAllOfIt) {
  constexpr size_t kThreads = 4;
  constexpr int kEntries = 3000;
  Append(0, 0, kEntries);
  Append(1, 0, kEntries);
  for (int round = 0; round < 200; ++round) {
    Append(0, kEntries + 2 * round, 2);
    Evict(0, {{5}, {5}, {5}});
    Append(1, kEntries + round, 1);
    const size_t n = kEntries + static_cast<size_t>(round) + 1;
    const auto is_whole = [&](std::span<const Slot> order) {
      const int64_t sum = std::accumulate(order.begin(), order.end(), int64_t{0});
      return order.size() == n && sum == static_cast<int64_t>(n * (n - 1) / 2);
    };
    std::array<bool, kThreads> right = {};
    {
      std::barrier together(kThreads);
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
          together.arrive_and_wait();
          right[i] = is_whole(views_.Order(Layer(0), i % kHeads)) &&
                     is_whole(views_.Order(Layer(1), i % kHeads));
        });
      }
    }
    ASSERT_EQ(std::ranges::count(right, true), kThreads) << "round " << round;
  }
}

}  // namespace
}  // namespace winnow::cache
