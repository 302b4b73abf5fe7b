#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using Positions = std::vector<Position>;

constexpr int kLayers = 3, kHeads = 2, kGroup = 2, kDim = 3, kModelDim = 4;
constexpr Position kN = 40, kSinks = 2;
constexpr int64_t kBudget = 9;
constexpr int64_t kReplayed = 11;  // rows

std::vector<float> Value(int layer, int head, Position position) {
  return testing::RandomVector({layer, head, position}, kDim);
}
std::vector<float> Projection(int layer, int q_head) {
  return testing::RandomVector({9, layer, q_head}, kModelDim * kDim);
}
double Stream(int layer, int64_t row) { return 1 + testing::Random({layer, row}); }

double Score(const testing::Weights& weights, bool plus, int layer, int kv_head, Position p) {
  double score = 0;
  for (int head = kGroup * kv_head; head < kGroup * (kv_head + 1); ++head) {
    double square = 0;
    const auto w = Projection(layer, head);
    const auto v = Value(layer, kv_head, p);
    for (size_t row = 0; row < kModelDim; ++row) {
      double dot = 0;
      for (size_t i = 0; i < kDim; ++i) dot += double{w[row * kDim + i]} * v[i];
      square += dot * dot;
    }
    for (int64_t query = 0; query < kReplayed; ++query) {
      const double weight =
          weights({.layer = layer, .q_head = head, .query = query, .rank = p, .position = p});
      score = std::max(score, plus ? weight * std::sqrt(square) / Stream(layer, query) : weight);
    }
  }
  return score;
}

struct Entry {
  double score;
  Position position;
  int layer, head;
};

class KvZipTest : public ::testing::TestWithParam<std::string> {};

TEST_P(KvZipTest, AgreesWithPlainLoops) {
  const bool plus = GetParam().find("plus") != std::string::npos;
  const bool by_layer = GetParam().find("layer") != std::string::npos;
  const bool by_head = GetParam().find("head") != std::string::npos;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const testing::Weights replay = testing::RandomWeights(seed);
    Harness h(Make(methods::KvZip(), "sinks=2" + GetParam()), {.n_layers = kLayers,
                                                               .n_q_heads = kHeads * kGroup,
                                                               .n_kv_heads = kHeads,
                                                               .dim = kDim,
                                                               .budget = kBudget});
    h.SetValues(Value);
    h.SetProjection(kModelDim, Projection);
    h.SetReplay(kReplayed, replay, Stream);
    h.Prefill(kN, testing::RandomWeights(99));  // not used
    // Groups of heads that share a budget.
    std::vector<std::vector<Entry>> groups;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        const bool begins = by_head || (by_layer ? head == 0 : layer == 0 && head == 0);
        if (begins) groups.emplace_back();
        for (Position p = kSinks; p < kN; ++p) {
          groups.back().push_back({Score(replay, plus, layer, head, p), p, layer, head});
        }
      }
    }
    std::vector<std::vector<Positions>> expected(kLayers, std::vector<Positions>(kHeads, {0, 1}));
    for (auto& group : groups) {
      const auto n_heads = group.size() / (kN - kSinks);
      std::sort(group.begin(), group.end(), [](const Entry& a, const Entry& b) {
        if (a.score != b.score) return a.score > b.score;
        if (a.position != b.position) return a.position > b.position;
        return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
      });
      for (size_t i = 0; i < n_heads * (kBudget - kSinks); ++i) {
        expected[static_cast<size_t>(group[i].layer)][static_cast<size_t>(group[i].head)].push_back(
            group[i].position);
      }
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        Positions& kept = expected[static_cast<size_t>(layer)][static_cast<size_t>(head)];
        std::sort(kept.begin(), kept.end());
        EXPECT_EQ(h.Kept(layer, head), kept) << "seed " << seed << ", layer " << layer;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, KvZipTest,
                         ::testing::Values("", ",plus=true", ",share=layer", ",share=head",
                                           ",plus=true,share=layer"));

// The text's first token is not repeated, and every other entry is scored only by the pass that
// repeats it. Without sinks the first entry is scored by all passes, and stays if a head attends to
// it.
TEST(KvZipTest, TheFirstTokenIsJudgedWithoutSinks) {
  for (const char* form : {"sinks=0,share=head", "sinks=0,share=head,plus=true"}) {
    Harness h(Make(methods::KvZip(), form), {.budget = 2});
    h.SetProjection(2, [](int, int) { return std::vector<float>{1, 0, 0, 1}; });
    h.SetValues([](int, int, Position) { return std::vector<float>{1, 1}; });
    // Two passes, of tokens 1 to 3 and 4 to 6. Only the second pass attends to the first token. It
    // also attends to token 2, which the first pass repeats: that does not count.
    const auto replay = [](const testing::Cell& cell) {
      if (cell.query < 4) return cell.position == 1 ? 0.3 : 0.0;
      if (cell.position == 0) return 0.5;
      return cell.position == 2 ? 0.4 : cell.position == 5 ? 0.1 : 0.0;
    };
    h.SetReplay(8, replay, [](int, int64_t) { return 1.0; }, {.n = 2, .first = 1});
    h.Prefill(7, testing::ByPosition(std::vector<double>(7, 0.0)));
    EXPECT_EQ(h.Kept(), (Positions{0, 1})) << form;
  }
}

TEST(KvZipTest, AsksForTheReplayInTheAuthorsWords) {
  const ReplaySpec replay = Make(methods::KvZip())->needs().replay;
  EXPECT_EQ(replay.text, "\n\nRepeat the previous context exactly.\n");
  EXPECT_EQ(replay.n_repeated, 8);
  EXPECT_EQ(replay.chunk, 2048);
}

}  // namespace
}  // namespace winnow::compression
