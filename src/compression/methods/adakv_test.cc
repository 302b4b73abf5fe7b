#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

using testing::Cell;
using testing::Harness;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

TEST(AdaKvTest, HeadsCompeteForWhatIsNotReserved) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.9, .8, .7, .6, .1, .05, 0},
                                        {.5, .2, .1, .05, .02, .01, 0}};
    return cell.query == 6 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  Harness h(Make(methods::AdaKv(), "window=1,pool=none,alpha=0.34"),
            {.n_q_heads = 2, .n_kv_heads = 2, .budget = 4});
  h.Prefill(7, weights);
  EXPECT_EQ(h.Kept(0, 0), (Positions{0, 1, 2, 3, 6}));
  EXPECT_EQ(h.Kept(0, 1), (Positions{0, 1, 6}));
}

TEST(AdaKvTest, ReservedEntriesAreKeptAgainstBetterHeads) {
  const Weights weights = [](const Cell& cell) {
    if (cell.query != 19) return 0.0;
    return cell.q_head == 0 ? 10.0 + cell.rank : 0.1 * cell.rank;
  };
  Harness h(Make(methods::AdaKv(), "window=2,pool=none,alpha=0.5"),
            {.n_q_heads = 2, .n_kv_heads = 2, .budget = 8});
  h.Prefill(20, weights);
  EXPECT_EQ(h.Kept(0, 0).size(), 6u + 6 / 2 + 2);  // 6 won, 3 reserved, the window
  EXPECT_EQ(h.Kept(0, 1), (Positions{15, 16, 17, 18, 19}));
}

// The six best of both heads include five of the first head: 0.66 * 5 + 1 = 4.3 and 0.66 * 1 + 1 =
// 1.66, which are rounded to 4 and 2.
TEST(AdaKvTest, AuthorsFormBlendsCounts) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.9, .8, .7, .6, .55, .05, 0},
                                        {.5, .2, .1, .05, .02, .01, 0}};
    return cell.query == 6 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  const auto sizes = [&](const std::string& more) {
    Harness h(Make(methods::AdaKv(), "window=1,pool=none," + more),
              {.n_q_heads = 2, .n_kv_heads = 2, .budget = 4});
    h.Prefill(7, weights);
    return std::pair(h.Kept(0, 0).size() - 1, h.Kept(0, 1).size() - 1);
  };
  EXPECT_EQ(sizes("alpha=0.34,form=reserve"), std::pair(size_t{5}, size_t{1}));
  EXPECT_EQ(sizes("alpha=0.34,form=blend"), std::pair(size_t{4}, size_t{2}));
  EXPECT_EQ(sizes("alpha=0,form=blend"), std::pair(size_t{5}, size_t{1}));
  EXPECT_EQ(sizes("alpha=1,form=blend"), std::pair(size_t{3}, size_t{3}));
}

// The best two entries hold 0.9 of the second head's weights and 0.4 of the first head's.
TEST(AdaKvTest, ConcentratedHeadsWeighMore) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.20, .20, .20, .20, .20, 0}, {.45, .45, .10, 0, 0, 0}};
    return cell.query == 5 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  const auto kept = [&](const std::string& more) {
    Harness h(Make(methods::AdaKv(), "window=1,pool=none,alpha=0" + more),
              {.n_q_heads = 2, .n_kv_heads = 2, .budget = 3});
    h.Prefill(6, weights);
    return std::pair(h.Kept(0, 0), h.Kept(0, 1));
  };
  EXPECT_EQ(kept(""), std::pair(Positions({3, 4, 5}), Positions({0, 1, 5})));
  // .2 * .4 against .1 * .9: the third entry of the second head is next.
  EXPECT_EQ(kept(",by_mass=true"), std::pair(Positions({4, 5}), Positions({0, 1, 2, 5})));
}

// AdaKV as plain loops over lists, as docs/methods/semantics.md#adakv and #snapkv describe it, with
// its small budgets, ties and chunks.
struct PlainAdaKv {
  int n_heads = 1, group = 1;
  int64_t budget = 0;
  testing::PlainWindow window = {};
  double alpha = 0.2;
  bool blend = false, by_mass = false;
  std::vector<Positions> entries = {};  // [kv_head], oldest first

  // Reads n tokens; weight(q_head, query of the call, position).
  template <class Weight>
  void Read(int64_t n, const Weight& weight) {
    entries.resize(static_cast<size_t>(n_heads));
    const auto share = static_cast<size_t>(budget - window.Under(budget));
    std::vector<std::vector<double>> scores;  // [kv_head], the best first
    std::vector<std::vector<int64_t>> ranked;
    std::vector<double> mass;
    for (int head = 0; head < n_heads; ++head) {
      Positions& own = entries[static_cast<size_t>(head)];
      for (int64_t i = 0; i < n; ++i) own.push_back(static_cast<Position>(n_seen + i));
      scores.push_back(window.Scores(own, n, budget, {head, group}, weight));
      ranked.push_back(testing::BestFirst(scores.back()));
      std::ranges::sort(scores.back(), std::greater());
      double best = 0, all = 0;
      for (size_t i = 0; i < scores.back().size(); ++i) {
        all += scores.back()[i];
        if (i < share) best += scores.back()[i];
      }
      mass.push_back(by_mass ? best / all : 1);
    }
    n_seen += n;
    const std::vector<size_t> sizes = Sizes(scores, mass, share);
    for (size_t head = 0; head < entries.size(); ++head) {
      Positions kept(entries[head].begin() + std::ssize(ranked[head]), entries[head].end());
      for (size_t i = 0; i < sizes[head]; ++i) {
        kept.push_back(entries[head][static_cast<size_t>(ranked[head][i])]);
      }
      std::sort(kept.begin(), kept.end());
      entries[head] = kept;
    }
  }

  // How many of its best entries each head keeps. Gives the places out one by one.
  std::vector<size_t> Sizes(const std::vector<std::vector<double>>& ranked,
                            const std::vector<double>& mass, size_t share) const {
    const auto reserved = static_cast<size_t>(std::floor(alpha * static_cast<double>(share)));
    std::vector<size_t> sizes;
    size_t left = share * ranked.size();
    for (const std::vector<double>& head : ranked) {
      sizes.push_back(blend ? 0 : std::min(reserved, head.size()));
      left -= sizes.back();
    }
    // To the head whose next entry is the best of the layer.
    for (; left > 0; --left) {
      size_t to = ranked.size();
      for (size_t head = 0; head < ranked.size(); ++head) {
        if (sizes[head] == ranked[head].size()) continue;
        const auto next = [&](size_t i) { return mass[i] * ranked[i][sizes[i]]; };
        if (to == ranked.size() || next(head) > next(to)) to = head;
      }
      if (to == ranked.size()) break;
      ++sizes[to];
    }
    if (!blend) return sizes;
    size_t total = 0;
    std::vector<double> missing;  // to the exact size, which is not a whole number
    std::vector<size_t> blended;
    for (size_t head = 0; head < sizes.size(); ++head) {
      total += sizes[head];
      const double exact =
          (1 - alpha) * static_cast<double>(sizes[head]) + static_cast<double>(reserved);
      blended.push_back(std::min(ranked[head].size(), static_cast<size_t>(std::floor(exact))));
      missing.push_back(exact - std::floor(exact));
    }
    for (size_t sum = std::accumulate(blended.begin(), blended.end(), size_t{0}); sum < total;) {
      size_t to = ranked.size();
      for (size_t head = 0; head < ranked.size(); ++head) {
        if (blended[head] == ranked[head].size()) continue;
        if (to == ranked.size() || missing[head] > missing[to]) to = head;
      }
      ++blended[to];
      missing[to] -= 1;
      ++sum;
    }
    return blended;
  }

  int64_t n_seen = 0;
};

// Prompts, whole and in chunks, of random lengths.
TEST(AdaKvTest, AgreesWithPlainLoops) {
  constexpr int kLayers = 2;
  int n_uneven = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    PlainAdaKv plain;
    plain.n_heads = 1 + draw(4);
    plain.group = 1 + draw(4);
    plain.window.window = 1 + draw(9);
    plain.window.pool = std::vector{"none", "average", "max"}[static_cast<size_t>(draw(3))];
    plain.window.kernel = 1 + 2 * draw(4);
    plain.window.reduce = draw(2) == 0 ? "mean" : "max";
    plain.budget = 1 + draw(30);
    plain.alpha = 0.125 * draw(9);
    plain.blend = draw(2) == 1;
    plain.by_mass = draw(2) == 1;
    const int n_calls = seed % 2 == 0 ? 1 : 2 + draw(6);
    const std::string parameters = plain.window.Parameters() +
                                   ",alpha=" + std::to_string(plain.alpha) +
                                   ",form=" + (plain.blend ? "blend" : "reserve") +
                                   ",by_mass=" + (plain.by_mass ? "true" : "false");
    Harness h(Make(methods::AdaKv(), parameters), {.n_layers = kLayers,
                                                   .n_q_heads = plain.n_heads * plain.group,
                                                   .n_kv_heads = plain.n_heads,
                                                   .budget = plain.budget});
    std::vector<PlainAdaKv> layers(kLayers, plain);
    for (int call = 0; call < n_calls; ++call) {
      const int64_t n = 1 + draw(n_calls == 1 ? 90 : 25);
      // Some heads attend more sharply than others.
      const auto weight = [&](int layer, int q_head, int64_t query, Position position) {
        return std::pow(
            testing::Random({static_cast<int64_t>(seed), call, layer, q_head, query, position}),
            1 + q_head / plain.group);
      };
      h.Prefill(n, [&](const Cell& cell) {
        return weight(cell.layer, cell.q_head, cell.query, cell.position);
      });
      for (int layer = 0; layer < kLayers; ++layer) {
        PlainAdaKv& own = layers[static_cast<size_t>(layer)];
        own.Read(n, [&](int q_head, int64_t query, Position position) {
          return weight(layer, q_head, query, position);
        });
        size_t sum = 0;
        for (int head = 0; head < plain.n_heads; ++head) {
          const Positions& expected = own.entries[static_cast<size_t>(head)];
          ASSERT_EQ(h.Kept(layer, head), expected)
              << parameters << ", seed " << seed << ", call " << call;
          sum += expected.size();
          n_uneven += expected.size() != own.entries[0].size();
        }
        EXPECT_EQ(static_cast<int64_t>(sum), plain.n_heads * std::min(own.n_seen, plain.budget));
      }
    }
  }
  EXPECT_GT(n_uneven, 300);
}

}  // namespace
}  // namespace winnow::compression
