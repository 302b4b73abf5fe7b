#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Kept = std::vector<Position>;

double Keep(int layer, int n_layers) {
  return 0.9 + 0.1 * (std::cos(std::numbers::pi * layer / n_layers) + 1) / 2;
}

TEST(PyramidInferTest, LaterLayersHoldFewer) {
  Harness h(testing::Make(PyramidInfer()), {.n_layers = 4});
  h.Prefill(400, [](const Cell&) { return 0.5; });
  int64_t n_context = 400 - 81;
  for (int layer = 0; layer < 4; ++layer) {
    n_context = static_cast<int64_t>(Keep(layer, 4) * static_cast<double>(n_context));
    const Kept kept = h.Kept(layer);
    EXPECT_EQ(static_cast<int64_t>(kept.size()), n_context + 81) << layer;
    // All scores are equal: the first four, the newest of the context and the recent ones stay.
    Kept expected = {0, 1, 2, 3};
    for (int64_t t = 400 - 81 - (n_context - 4); t < 400; ++t) {
      expected.push_back(static_cast<Position>(t));
    }
    EXPECT_EQ(kept, expected) << layer;
  }
}

TEST(PyramidInferTest, ShortContextsAreLeftAlone) {
  // 79 context tokens and 20 recent ones; layer 1 of two keeps least + (1 - least) / 2 of the
  // context.
  Harness h(testing::Make(PyramidInfer(), "least=0.64"), {.n_layers = 2});
  h.Prefill(99, [](const Cell&) { return 0.5; });
  EXPECT_EQ(h.Kept(1).size(), 99u) << "floor(.82 * 79) = 64";
  Harness more(testing::Make(PyramidInfer(), "least=0.66"), {.n_layers = 2});
  more.Prefill(99, [](const Cell&) { return 0.5; });
  EXPECT_EQ(more.Kept(1).size(), 65u + 20) << "floor(.83 * 79) = 65";
}

// Token 5 gets the vote of query 7, token 4 that of query 9, which weighs more.
TEST(PyramidInferTest, VotesRiseTowardsTheNewest) {
  for (const std::string slope : {"0", "0.2"}) {
    Harness h(
        testing::Make(PyramidInfer(), "recent=0.3,sinks=0,min_context=0,least=0.8,slope=" + slope),
        {.n_layers = 2});
    h.Prefill(10, [&](const Cell& cell) {
      if (cell.position == 4) return cell.query == 9 ? 1.0 : 0.0;
      if (cell.position == 5) return cell.query == 7 ? 1.0 : 0.0;
      return 2.0;
    });
    // Recent: 6..9, with weights 1, 1.07, 1.13, 1.2. Of six context tokens floor(.9 * 6) = 5 stay;
    // of equal ones the newer.
    EXPECT_EQ(h.Kept(1),
              slope == "0" ? (Kept{0, 1, 2, 3, 5, 6, 7, 8, 9}) : (Kept{0, 1, 2, 3, 4, 6, 7, 8, 9}));
  }
}

// Prompt and generation against plain loops.
TEST(PyramidInferTest, AgreesWithPlainLoops) {
  constexpr int kLayers = 3, kQueryHeads = 4;
  constexpr int64_t kPrompt = 150, kRecent = 31;
  Harness h(testing::Make(PyramidInfer(), "min_context=20,least=0.7"),
            {.n_layers = kLayers, .n_q_heads = kQueryHeads, .n_kv_heads = 2});
  const auto keep = [](int layer) {
    return 0.7 + 0.3 * (std::cos(std::numbers::pi * layer / kLayers) + 1) / 2;
  };
  const auto weight = [](int layer, int q_head, int64_t query, Position entry) {
    return testing::Random({layer, q_head, query, entry});
  };
  // A layer's rows are the tokens that reached it; the recent ones are last.
  std::vector<Kept> tokens(kLayers);
  const auto weights = [&](const Cell& cell) {
    const Kept& present = tokens[static_cast<size_t>(cell.layer)];
    const int64_t query = h.n_seen() > 0 ? h.n_seen() : present[static_cast<size_t>(cell.query)];
    return weight(cell.layer, cell.q_head, query, cell.position);
  };
  const auto vote = [&](int layer, Position entry, int64_t first, int64_t last) {
    double sum = 0;
    const int64_t from = std::max<int64_t>(first, entry);
    for (int64_t query = from; query <= last; ++query) {
      const double way = last > from ? static_cast<double>(query - from) / (last - from) : 0;
      for (int q_head = 0; q_head < kQueryHeads; ++q_head) {
        sum += (1 + 0.2 * way) * weight(layer, q_head, query, entry);
      }
    }
    return sum / static_cast<double>(last - from + 1);
  };
  // Keeps the n best of tokens[first..last) by the votes of the queries.
  const auto thin = [&](int layer, Kept& list, size_t first, size_t last, int64_t n,
                        int64_t first_query, int64_t last_query) {
    Kept region(list.begin() + static_cast<ptrdiff_t>(first),
                list.begin() + static_cast<ptrdiff_t>(last));
    std::stable_sort(region.begin(), region.end(), [&](Position a, Position b) {
      return vote(layer, a, first_query, last_query) > vote(layer, b, first_query, last_query);
    });
    const std::set<Position> gone(region.begin() + n, region.end());
    std::erase_if(list, [&](Position t) { return gone.contains(t); });
  };

  tokens[0].resize(kPrompt);
  std::iota(tokens[0].begin(), tokens[0].end(), 0);
  std::vector<Kept> expected(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (layer > 0) tokens[at] = expected[at - 1];
    expected[at] = tokens[at];
    const auto n_context = static_cast<int64_t>(tokens[at].size()) - kRecent;
    const auto n = static_cast<int64_t>(keep(layer) * static_cast<double>(n_context));
    thin(layer, expected[at], 4, static_cast<size_t>(n_context), n - 4, kPrompt - kRecent,
         kPrompt - 1);
  }
  h.Prefill(kPrompt, weights);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < 2; ++head) {
      ASSERT_EQ(h.Kept(layer, head), expected[static_cast<size_t>(layer)]) << layer;
    }
  }
  for (Position t = kPrompt; t < kPrompt + 200; ++t) {
    h.Decode(weights);
    for (int layer = 0; layer < kLayers; ++layer) {
      Kept& list = expected[static_cast<size_t>(layer)];
      list.push_back(t);
      if ((t - kPrompt + 1) % 16 == 0) {
        const size_t end = list.size() - kRecent;
        const auto n = static_cast<int64_t>(keep(layer) * 16);
        thin(layer, list, end - 16, end, n, kPrompt, t);
      }
      for (int head = 0; head < 2; ++head) ASSERT_EQ(h.Kept(layer, head), list) << t;
    }
  }
}

}  // namespace
}  // namespace winnow::compression::methods
