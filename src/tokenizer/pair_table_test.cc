#include "tokenizer/pair_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace winnow::tokenizer {
namespace {

using Pairs = std::vector<std::pair<int32_t, int32_t>>;

// Pairs whose keys had the same last 16 bits of hash when the hash had no seed:
//   hash = key * odd;  hash ^= hash >> 32
Pairs CollidingPairs(size_t n) {
  Pairs pairs;
  for (int32_t left = 0; pairs.size() < n; ++left) {
    for (int32_t right = 0; right < 1 << 17 && pairs.size() < n; ++right) {
      const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
      const uint64_t hash = key * 0x9E3779B97F4A7C15u;
      if (((hash ^ hash >> 32) & 0xFFFF) == 0) pairs.emplace_back(left, right);
    }
  }
  return pairs;
}

TEST(PairTable, FindsWhatWasAdded) {
  PairTable table(3);
  EXPECT_FALSE(table.Find(1, 2).has_value());
  table.Add(1, 2, {.priority = 5, .id = 7});
  table.Add(2, 1, {.priority = 6, .id = 8});
  table.Add(1, 2, {.priority = 9, .id = 9});  // the first counts
  EXPECT_EQ(table.Find(1, 2)->id, 7);
  EXPECT_EQ(table.Find(2, 1)->id, 8);
  EXPECT_FALSE(table.Find(0, 0).has_value());
  EXPECT_FALSE(table.Find(2, 2).has_value());
}

// Regression: each of these pairs was compared with all before it.
TEST(PairTable, PairsMadeToCollideAreSpread) {
  const Pairs pairs = CollidingPairs(1000);
  PairTable table(30000);  // 2^16 slots
  for (const auto& [left, right] : pairs) table.Add(left, right, {.priority = 0, .id = right});
  EXPECT_LT(table.MaxProbes(), 100u);  // other pairs: 3
  for (const auto& [left, right] : pairs) EXPECT_EQ(table.Find(left, right)->id, right);
}

// Whoever knows the seeds can make pairs collide, so each table has others.
TEST(PairTable, PairsThatCollideUnderASeedAreSpreadUnderOthers) {
  constexpr uint64_t kSeed = 7, kMultiplier = 0x9E3779B97F4A7C15u;
  constexpr size_t kPairs = 1000;  // in 2,048 slots
  Pairs pairs;
  for (int32_t left = 0; pairs.size() < kPairs; ++left) {
    const auto product =
        static_cast<unsigned __int128>((static_cast<uint64_t>(left) << 32 | 1) ^ kSeed) *
        kMultiplier;
    const auto hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    if ((hash & 2047) == 0) pairs.emplace_back(left, 1);
  }
  const auto max_probes = [&](PairTable table) {
    for (const auto& [left, right] : pairs) table.Add(left, right, {.priority = 0, .id = left});
    return table.MaxProbes();
  };
  EXPECT_EQ(max_probes(PairTable(kPairs, kSeed, kMultiplier)), kPairs);
  EXPECT_LT(max_probes(PairTable(kPairs)), kPairs / 4);
}

}  // namespace
}  // namespace winnow::tokenizer
