// Eviction of generated tokens under winnow:generated=leave, against plain loops.
#include "compression/methods/winnow_generated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/half.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Harness;
using testing::RandomVector;
using testing::RandomWeights;

constexpr int kLayers = 2, kHeads = 2, kGroup = 3, kDim = 4;
constexpr int64_t kPrompt = 60, kBudget = 12;
constexpr int kRecent = 4;
constexpr double kDecay = 0.5;  // keeps halves exact

std::vector<float> Key(int layer, int head, Position p) {
  return RandomVector({1, layer, head, p}, kDim);
}
std::vector<float> Value(int layer, int head, Position p) {
  return RandomVector({2, layer, head, p}, kDim);
}

struct Entry {
  Position position = 0;
  double score = 0;
  bool rest = false;
  double bias = 0;
  std::vector<float> key, value;
};
using Head = std::vector<Entry>;  // oldest first

class GeneratedTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Harness> MakeHarness(const std::string& more, int64_t budget = kBudget) {
    auto harness = std::make_unique<Harness>(
        testing::Make(Winnow(), "generated=leave,recent=4,decay=0.5" + more),
        testing::HarnessConfig{.n_layers = kLayers,
                               .n_q_heads = kHeads * kGroup,
                               .n_kv_heads = kHeads,
                               .dim = kDim,
                               .budget = budget});
    harness->SetKeys(Key);
    harness->SetValues(Value);
    harness->SetQueries([](int layer, int head, Position p) {
      return RandomVector({3, layer, head, p}, kDim);
    });
    harness->SetReplay(20, RandomWeights(7), [](int, int64_t) { return 1; });
    return harness;
  }

  static Head Read(const Harness& harness, int layer, int head) {
    cache::Cache& cache = harness.cache();
    const std::vector<Position> positions = harness.Kept(layer, head);
    const auto order = cache.order(layer, head);
    const std::vector<Slot> slots(order.begin(), order.end());
    const bool has_rests = harness.method().traits().storage.bias_column >= 0;
    Head entries;
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      const auto slot = static_cast<size_t>(slots[rank]);
      Entry& entry = entries.emplace_back();
      entry.position = positions[rank];
      if (has_rests) entry.bias = cache.half_column(layer, head, 0)[slot];
      entry.score = cache.half_column(layer, head, has_rests ? 1 : 0)[slot];
      entry.rest = std::isinf(entry.score);
      entry.key = harness.Key(static_cast<int64_t>(rank), layer, head);
      entry.value = harness.Value(static_cast<int64_t>(rank), layer, head);
    }
    return entries;
  }

  // One generated token in a head that may hold n_held entries besides the newest.
  static void Step(Head& entries, const Entry& added, int64_t n_held, bool rests,
                   const std::function<double(int64_t rank, Position position)>& weight) {
    entries.push_back(added);
    const int64_t n = std::ssize(entries), n_old = n - kRecent;
    for (int64_t rank = 0; rank < n_old; ++rank) {
      Entry& entry = entries[static_cast<size_t>(rank)];
      entry.score = std::max(entry.score, weight(rank, entry.position));
    }
    if (n - n_held - kRecent < kRecent) return;
    int64_t n_evict = n - n_held - kRecent;
    int64_t rest = -1;
    for (int64_t rank = 0; rank < n_old; ++rank) {
      if (entries[static_cast<size_t>(rank)].rest) rest = rank;
    }
    std::vector<int64_t> ranks(static_cast<size_t>(n_old));
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int64_t>(i);
    std::ranges::stable_sort(
        ranks, {}, [&](int64_t rank) { return entries[static_cast<size_t>(rank)].score; });
    ranks.resize(static_cast<size_t>(n_evict + (rests && rest < 0 ? 1 : 0)));
    std::ranges::sort(ranks);
    if (rests && rest < 0) {
      rest = ranks.back();
      ranks.pop_back();
    }
    if (rests) {
      Entry& into = entries[static_cast<size_t>(rest)];
      const double before = std::exp(into.bias);
      double after = before;
      for (const int64_t rank : ranks) after += std::exp(entries[static_cast<size_t>(rank)].bias);
      for (size_t d = 0; d < kDim; ++d) {
        double key = before * into.key[d], value = before * into.value[d];
        for (const int64_t rank : ranks) {
          const Entry& leaver = entries[static_cast<size_t>(rank)];
          key += std::exp(leaver.bias) * leaver.key[d];
          value += std::exp(leaver.bias) * leaver.value[d];
        }
        into.key[d] = static_cast<float>(key / after);
        into.value[d] = static_cast<float>(value / after);
      }
      into.bias = Half(static_cast<float>(std::min(std::log(after), 8.0)));
      into.rest = true;
      into.score = INFINITY;
    }
    for (int64_t rank = 0; rank < n_old; ++rank) {
      Entry& entry = entries[static_cast<size_t>(rank)];
      if (!entry.rest) entry.score *= kDecay;
    }
    for (auto i = ranks.rbegin(); i != ranks.rend(); ++i) entries.erase(entries.begin() + *i);
  }

  static void ExpectSame(const Head& expected, const Head& found, const std::string& where) {
    ASSERT_EQ(expected.size(), found.size()) << where;
    for (size_t rank = 0; rank < found.size(); ++rank) {
      const Entry &a = expected[rank], &b = found[rank];
      ASSERT_EQ(a.position, b.position) << where << " rank " << rank;
      EXPECT_EQ(a.rest, b.rest) << where << " rank " << rank;
      if (!a.rest) {
        EXPECT_NEAR(a.score, b.score, 1e-6) << where << " rank " << rank;
      }
      EXPECT_EQ(a.bias, b.bias) << where << " rank " << rank;
      for (size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(a.key[d], b.key[d], 4e-3) << where << " rank " << rank;
        EXPECT_NEAR(a.value[d], b.value[d], 4e-3) << where << " rank " << rank;
      }
    }
  }

  // Prompts, each followed by generated tokens.
  static void Compare(const std::string& more, const std::vector<int64_t>& prompts) {
    const auto harness = MakeHarness(more);
    const bool rests = harness->method().traits().storage.bias_column >= 0;
    for (const int64_t n_prompt : prompts) {
      harness->Prefill(n_prompt, RandomWeights(1));
      std::vector<Head> heads;
      std::vector<int64_t> n_held;
      for (int i = 0; i < kLayers * kHeads; ++i) {
        heads.push_back(Read(*harness, i / kHeads, i % kHeads));
        n_held.push_back(harness->n_seen() > kBudget ? std::ssize(heads.back()) : kBudget);
      }
      for (uint64_t step = 0; step < 50; ++step) {
        const testing::Weights weights = RandomWeights(100 + step);
        const auto position = static_cast<Position>(harness->n_seen());
        harness->Decode(weights);
        for (int i = 0; i < kLayers * kHeads; ++i) {
          const int layer = i / kHeads, head = i % kHeads;
          const auto weight = [&](int64_t rank, Position p) {
            double largest = 0;
            for (int q_head = head * kGroup; q_head < (head + 1) * kGroup; ++q_head) {
              largest = std::max(largest, weights({layer, q_head, 0, rank, p}));
            }
            return largest;
          };
          const auto at = static_cast<size_t>(i);
          Step(heads[at],
               {.position = position,
                .key = Key(layer, head, position),
                .value = Value(layer, head, position)},
               n_held[at], rests, weight);
          ExpectSame(heads[at], Read(*harness, layer, head),
                     "step " + std::to_string(step) + " head " + std::to_string(i));
        }
      }
    }
  }
};

TEST_F(GeneratedTest, AgreesWithPlainLoops) {
  Compare("", {kPrompt});
  Compare(",rest=0", {kPrompt});
  Compare("", {kPrompt, kPrompt, 20});
}

// After a prompt that stays whole a head's size is the budget. The first eviction creates a rest
// row.
TEST_F(GeneratedTest, AfterAPromptThatStaysWhole) {
  Compare("", {7});
  Compare(",rest=0", {7});
  Compare("", {7, kPrompt});
}

// Scores start with the replay's weights; rest rows are marked.
TEST_F(GeneratedTest, BeginsWithTheScoresOfTheReplay) {
  const auto harness = MakeHarness("");
  harness->Prefill(kPrompt, RandomWeights(1));
  const testing::Weights weights = RandomWeights(7);
  int n_rests = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (const Entry& entry : Read(*harness, layer, head)) {
        n_rests += entry.rest ? 1 : 0;
        EXPECT_EQ(entry.rest, entry.bias != 0);
        if (entry.rest) continue;
        double largest = 0;
        for (int q_head = head * kGroup; q_head < (head + 1) * kGroup; ++q_head) {
          for (int64_t query = 0; query < 20; ++query) {
            largest =
                std::max(largest, weights({layer, q_head, query, entry.position, entry.position}));
          }
        }
        EXPECT_EQ(entry.score, largest);
      }
    }
  }
  EXPECT_EQ(n_rests, kLayers * kHeads);
}

// Rest rows that remain when a later prompt is compressed are still rest rows.
TEST_F(GeneratedTest, RestRowsStayRestRows) {
  const auto harness = MakeHarness(",rest=0.3", 30);
  std::vector<int> n_rests;
  for (const int64_t n_prompt : {kPrompt, kPrompt / 4, kPrompt / 4}) {
    harness->Prefill(n_prompt, RandomWeights(1));
    int& n = n_rests.emplace_back(0);
    for (int i = 0; i < kLayers * kHeads; ++i) {
      for (const Entry& entry : Read(*harness, i / kHeads, i % kHeads)) {
        EXPECT_EQ(entry.rest, entry.bias != 0) << entry.position;
        n += entry.rest ? 1 : 0;
      }
    }
    for (uint64_t step = 0; step < 30; ++step) harness->Decode(RandomWeights(step));
  }
  // More rest rows than the last prompt alone creates.
  EXPECT_GT(n_rests.back(), n_rests.front());
}

// A later prompt sets new sizes, and the entries held stay within DecodeSizes.
TEST_F(GeneratedTest, HoldsTheSizesOfTheLastPrompt) {
  const auto harness = MakeHarness("");
  for (int turn = 0; turn < 3; ++turn) {
    harness->Prefill(kPrompt, RandomWeights(static_cast<uint64_t>(turn)));
    std::vector<int64_t> left;
    left.reserve(kLayers * kHeads);
    for (int i = 0; i < kLayers * kHeads; ++i) {
      left.push_back(harness->cache().n_slots(i / kHeads, i % kHeads));
    }
    for (int step = 0; step < 40; ++step) {
      harness->Decode(RandomWeights(static_cast<uint64_t>(100 + step)));
      int64_t all = 0;
      for (int i = 0; i < kLayers * kHeads; ++i) {
        const int64_t n = harness->cache().n_slots(i / kHeads, i % kHeads);
        EXPECT_LT(n, left[static_cast<size_t>(i)] + 2 * kRecent);
        if (step >= 2 * kRecent) {
          EXPECT_GE(n, left[static_cast<size_t>(i)] + kRecent);
        }
        all += n;
      }
      const Method::Sizes promised =
          harness->method().DecodeSizes(kBudget, kPrompt, harness->n_seen(), kLayers);
      EXPECT_LE(all, promised.total_slots * kHeads);
    }
  }
}

}  // namespace
}  // namespace winnow::compression::methods
