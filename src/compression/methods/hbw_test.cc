#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/plain_window.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::LastQuery;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

// Blocks that are kept of a prompt whose blocks of `block` tokens have these scores; the window is
// 1.
Positions KeptBlocks(const std::vector<double>& scores, int block, int n_kept,
                     const std::string& rounds) {
  std::vector<double> row;
  for (const double score : scores) {
    for (int i = 0; i < block; ++i) row.push_back(score + (i % 2 == 0 ? 0.25 : -0.25));
  }
  row.push_back(0);
  Harness h(Make(methods::Hbw(),
                 "window=1,pool=none,block=" + std::to_string(block) + ",rounds=" + rounds),
            {.budget = n_kept * block + 1});
  const auto n = static_cast<int64_t>(row.size());
  h.Prefill(n, LastQuery(row, n));
  const Positions kept = h.Kept();
  EXPECT_EQ(kept.back(), n - 1);
  EXPECT_EQ(kept.size(), static_cast<size_t>(n_kept * block + 1));
  Positions blocks;
  for (size_t i = 0; i + 1 < kept.size(); i += static_cast<size_t>(block)) {
    blocks.push_back(kept[i] / block);
    EXPECT_EQ(kept[i] % block, 0);
  }
  return blocks;
}

const std::vector<double> kScores = {20, 1, 5,  2,  19, 18, 3,  4,  7,  6,
                                     8,  9, 11, 10, 12, 13, 14, 15, 16, 17};

TEST(HbwTest, RoundsCoverTheRegions) {
  for (const int block : {1, 2}) {
    EXPECT_EQ(KeptBlocks(kScores, block, 6, "1/8"), (Positions{0, 4, 5, 14, 16, 19}));
    EXPECT_EQ(KeptBlocks(kScores, block, 6, "1"), (Positions{0, 4, 5, 17, 18, 19}));
    EXPECT_EQ(KeptBlocks(kScores, block, 8, "8"), (Positions{0, 4, 5, 8, 11, 14, 16, 19}));
    EXPECT_EQ(KeptBlocks(kScores, block, 12, "1/4"),
              (Positions{0, 2, 4, 5, 8, 12, 14, 15, 16, 17, 18, 19}));
    EXPECT_EQ(KeptBlocks(kScores, block, 12, "1"),
              (Positions{0, 4, 5, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  }
}

TEST(HbwTest, GroupsThatRunOutAreFilledUpFromAll) {
  // Round one takes 2 and 3 of four; round two's groups, of one block each, nominate the remaining
  // ones.
  EXPECT_EQ(KeptBlocks({1, 2, 9, 9}, 1, 3, "1/4"), (Positions{1, 2, 3}));
  // Three rounds with two groups each: the best nominees are 1, then 2, then 0.
  EXPECT_EQ(KeptBlocks({5, 7, 6, 1}, 1, 3, "2/2/2"), (Positions{0, 1, 2}));
}

// The rounds as docs/methods/semantics.md#hbw-kv describes them, on a plain set of blocks.
std::vector<bool> PlainRounds(const std::vector<double>& scores, int64_t left,
                              const std::vector<int>& rounds) {
  const auto n = static_cast<int64_t>(scores.size());
  std::vector<bool> taken(scores.size(), false);
  // The best free block of [begin, end), -1 if there is none; of equal ones the newest.
  const auto best = [&](int64_t begin, int64_t end) {
    int64_t found = -1;
    for (int64_t i = begin; i < end; ++i) {
      const bool better =
          found < 0 || scores[static_cast<size_t>(i)] >= scores[static_cast<size_t>(found)];
      if (!taken[static_cast<size_t>(i)] && better) found = i;
    }
    return found;
  };
  for (size_t round = 0; round < rounds.size(); ++round) {
    const auto still = static_cast<int64_t>(rounds.size() - round);
    const int64_t share = (left + still - 1) / still;
    const int64_t m = rounds[round];
    int64_t n_taken = 0;
    for (int64_t group = 0; group < m; ++group) {
      for (int64_t i = 0; i < share / m; ++i) {
        const int64_t block = best(group * n / m, (group + 1) * n / m);
        if (block < 0) break;
        taken[static_cast<size_t>(block)] = true;
        ++n_taken;
      }
    }
    std::vector<std::pair<double, int64_t>> nominees;
    for (int64_t group = 0; group < m; ++group) {
      const int64_t block = best(group * n / m, (group + 1) * n / m);
      if (block >= 0) nominees.emplace_back(scores[static_cast<size_t>(block)], block);
    }
    std::sort(nominees.rbegin(), nominees.rend());
    for (size_t i = 0; i < nominees.size() && static_cast<int64_t>(i) < share % m; ++i) {
      taken[static_cast<size_t>(nominees[i].second)] = true;
      ++n_taken;
    }
    for (; n_taken < share; ++n_taken) taken[static_cast<size_t>(best(0, n))] = true;
    left -= share;
  }
  return taken;
}

// Prompts, whole and in chunks, of random lengths; every option but the representatives.
TEST(HbwTest, AgreesWithPlainRounds) {
  const std::vector<std::pair<std::string, std::vector<int>>> all = {
      {"1", {1}}, {"1/8", {1, 8}}, {"8", {8}}, {"2/3/5", {2, 3, 5}}, {"30/1", {30, 1}}};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const auto& [text, rounds] = all[seed % all.size()];
    testing::PlainWindow plain;
    plain.window = 1 + draw(6);
    plain.pool = std::vector{"none", "average", "max"}[static_cast<size_t>(draw(3))];
    plain.kernel = 1 + 2 * draw(4);
    plain.reduce = draw(2) == 0 ? "mean" : "max";
    plain.prefix_softmax = draw(3) == 0;
    int64_t block = draw(5);  // 0: a 32nd of the budget
    const int64_t budget = 1 + (block == 0 ? draw(140) : draw(40));
    const std::string parameters =
        plain.Parameters() + ",rounds=" + text + ",block=" + std::to_string(block);
    if (block == 0) block = std::max<int64_t>(1, budget / 32);
    const int n_calls = seed % 2 == 0 ? 1 : 2 + draw(4), group = 1 + draw(3);
    Harness h(Make(methods::Hbw(), parameters),
              {.n_q_heads = 2 * group, .n_kv_heads = 2, .budget = budget});
    std::vector<Positions> lists(2);
    for (int call = 0; call < n_calls; ++call) {
      const int64_t n = 1 + draw(n_calls == 1 ? 200 : 60);
      const auto first = static_cast<Position>(h.n_seen());
      const auto weight = [&](int q_head, int64_t query, Position position) {
        return testing::Random({static_cast<int64_t>(seed), call, q_head, query, position});
      };
      h.Prefill(n, [&](const testing::Cell& cell) {
        return weight(cell.q_head, cell.query, cell.position);
      });
      for (int head = 0; head < 2; ++head) {
        Positions& entries = lists[static_cast<size_t>(head)];
        for (Position i = 0; i < n; ++i) entries.push_back(first + i);
        const std::vector<double> scores = plain.Scores(entries, n, budget, {head, group}, weight);
        if (std::ssize(entries) > budget) {
          std::vector<double> means;
          for (int64_t begin = 0; begin < std::ssize(scores); begin += block) {
            const int64_t end = std::min(begin + block, std::ssize(scores));
            means.push_back(std::accumulate(scores.begin() + begin, scores.begin() + end, 0.0) /
                            static_cast<double>(end - begin));
          }
          const std::vector<bool> taken =
              PlainRounds(means, (budget - plain.Under(budget)) / block, rounds);
          Positions kept;
          for (int64_t i = 0; i < std::ssize(entries); ++i) {
            if (i >= std::ssize(scores) || taken[static_cast<size_t>(i / block)]) {
              kept.push_back(entries[static_cast<size_t>(i)]);
            }
          }
          entries = kept;
        }
        ASSERT_EQ(h.Kept(0, head), entries)
            << parameters << ", budget " << budget << ", seed " << seed << ", call " << call;
      }
    }
  }
}

TEST(HbwTest, BlocksGoAsAWhole) {
  // 4 blocks of 3 and one of 2 before the window; the budget has room for two.
  Harness h(Make(methods::Hbw(), "window=2,block=3,rounds=1,pool=none"), {.budget = 9});
  std::vector<double> row = {0, 0, 9, 2, 2, 2, 1, 1, 1, 0, 0, 0, 4, 4, 5, 5};
  h.Prefill(16, LastQuery(row, 16));
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 2, 12, 13, 14, 15}));  // means 3, 2, 1, 0, 4
}

TEST(HbwTest, BlockLargerThanTheRoomLeavesTheWindow) {
  Harness h(Make(methods::Hbw(), "window=4,block=8"), {.budget = 10});
  h.Prefill(30, testing::RandomWeights(1));
  EXPECT_EQ(h.Kept(), (Positions{26, 27, 28, 29}));
}

// The paper's results without blocks and rounds are SnapKV's: with both methods' defaults, and with
// the same parameters.
TEST(HbwTest, SingleTokensInOneRoundAreSnapKv) {
  for (const std::string parameters :
       {"", "window=6", "window=6,kernel=3", "window=6,pool=average", "window=6,pool=none",
        "window=6,prefix_softmax=true", "window=6,reduce=max"}) {
    const std::string more = parameters.empty() ? "" : "," + parameters;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const int64_t n = 60 + static_cast<int64_t>(seed);
      const testing::HarnessConfig config = {.n_q_heads = 4, .n_kv_heads = 2, .budget = 45};
      Harness hbw(Make(methods::Hbw(), "block=1,rounds=1" + more), config);
      Harness snap(Make(methods::SnapKv(), parameters), config);
      for (Harness* h : {&hbw, &snap}) h->Prefill(n, testing::RandomWeights(seed));
      EXPECT_EQ(hbw.Kept(0, 0), snap.Kept(0, 0)) << parameters << " seed " << seed;
      EXPECT_EQ(hbw.Kept(0, 1), snap.Kept(0, 1)) << parameters << " seed " << seed;
      EXPECT_EQ(hbw.Kept(0, 0).size(), 45u);
    }
  }
}

TEST(HbwTest, RefusesAnEvenKernel) {
  const Result<Spec> spec = ParseSpec("hbw:kernel=4");
  EXPECT_EQ(methods::Hbw().make(*spec).error().message,
            "hbw: kernel: found '4', expected an odd integer from 1 to 1023");
}

TEST(HbwTest, PrefixSoftmaxWeighsRowsByWhatTheyGiveThePrefix) {
  // The window's first row gives the prefix .8, its second row .1.
  const Weights weights = [](const testing::Cell& cell) {
    const double first[] = {.5, .3, 0, .2};
    const double second[] = {.02, .02, .06, .5, .4};
    if (cell.query == 3) return first[cell.rank];
    return cell.query == 4 ? second[cell.rank] : 0;
  };
  const auto kept = [&](const std::string& more) {
    Harness h(Make(methods::Hbw(), "window=2,block=1,rounds=1,pool=none" + more), {.budget = 4});
    h.Prefill(5, weights);
    return h.Kept();
  };
  EXPECT_EQ(kept(""), (Positions{0, 1, 3, 4}));                      // .52 .32 .06
  EXPECT_EQ(kept(",prefix_softmax=true"), (Positions{0, 2, 3, 4}));  // .825 .575 .6
}

// Eq. 3 is the softmax of each query head: a head that gives the prefix almost no attention counts
// as much as one that gives it all.
TEST(HbwTest, PrefixSoftmaxIsThatOfEachQueryHead) {
  const Weights weights = [](const testing::Cell& cell) {
    const double rows[2][4] = {{.5, .3, .1, .1}, {.001, .002, .007, .99}};
    return cell.query == 3 ? rows[cell.q_head][cell.rank] : 0;
  };
  const auto kept = [&](const std::string& more) {
    Harness h(Make(methods::Hbw(),
                   "window=1,block=1,rounds=1,pool=none,prefix_softmax=true,reduce=" + more),
              {.n_q_heads = 2, .n_kv_heads = 1, .budget = 2});
    h.Prefill(4, weights);
    return h.Kept();
  };
  // Heads: .56 .33 .11 and .1 .2 .7. The mean of the rows would be .55 .33 .12 and keep token 0.
  EXPECT_EQ(kept("mean"), (Positions{2, 3}));
  EXPECT_EQ(kept("sum"), (Positions{2, 3}));
  EXPECT_EQ(kept("max"), (Positions{2, 3}));
}

TEST(HbwTest, BlocksAreAThirtySecondOfTheBudget) {
  Harness h(Make(methods::Hbw(), "window=16,rounds=1,pool=none"), {.budget = 96});
  std::vector<double> row(200, 0.0);
  row[10] = 1;  // the block [9, 12) of three
  h.Prefill(200, LastQuery(row, 200));
  const Positions kept = h.Kept();
  EXPECT_EQ(Positions(kept.begin(), kept.begin() + 3), (Positions{9, 10, 11}));
  // 26 blocks of 3 and the window; of equal blocks the newest stay, the last of which is short.
  EXPECT_EQ(kept.size(), 25u * 3 + 1 + 16);
}

// The alternatives to selection in the paper's Table 2: seven tokens before a window of one, and
// three entries to keep: blocks [0, 2), [2, 4), [4, 7).
TEST(HbwTest, RepresentativesOfBlocks) {
  const std::vector<double> row = {3, 1, 2, 2, 1, 5, 4, 0};
  const std::pair<std::string, Positions> cases[] = {
      {"first", {0, 2, 4, 7}},
      {"last", {1, 3, 6, 7}},
      {"max", {0, 3, 5, 7}},  // the newer of equal ones
      {"avg", {1, 3, 6, 7}}};
  for (const auto& [which, kept] : cases) {
    Harness h(Make(methods::Hbw(), "window=1,pool=none,representative=" + which), {.budget = 4});
    h.SetKeys([](int, int, Position t) { return std::vector{static_cast<float>(t), 1.0F}; });
    h.SetValues([](int, int, Position t) { return std::vector{2.0F, static_cast<float>(t * t)}; });
    h.Prefill(8, LastQuery(row, 8));
    EXPECT_EQ(h.Kept(), kept) << which;
    if (which != "avg") {
      EXPECT_EQ(h.Key(2)[0], static_cast<float>(kept[2])) << which;
      continue;
    }
    // The mean of each block; the window stays as it was.
    EXPECT_EQ(h.Key(0), (std::vector{0.5F, 1.0F}));
    EXPECT_EQ(h.Value(1), (std::vector{2.0F, 6.5F}));
    EXPECT_NEAR(h.Key(2)[0], 5, 1e-6);
    EXPECT_NEAR(h.Value(2)[1], 77.0 / 3, 1e-5);
    EXPECT_EQ(h.Key(3), (std::vector{7.0F, 1.0F}));
  }
}

}  // namespace
}  // namespace winnow::compression
