#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/methods/treekv_testing.h"
#include "compression/parts.h"
#include "compression/testing/harness.h"
#include "compression/testing/under_budget.h"

// TreeKV over the chunks of a prompt and the turns of a chat (docs/methods/semantics.md#chunks).
namespace winnow::compression {
namespace {

using methods::treekv::PlainTree;
using methods::treekv::Turn;
using testing::Harness;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

// The heads that share a layer and its pointers.
struct Heads {
  int n_kv_heads = 2, group = 1;
  const char* reduce = "mean";
};

// `block` is the configured size, c.block the one that the budget allows.
void Compare(const PlainTree::Config& c, int64_t block, const std::vector<Turn>& turns,
             uint64_t seed, const Heads& shape = {}) {
  const std::string prompt = c.block == 0 ? "prefill=step"
                                          : "block=" + std::to_string(block) +
                                                ",prefill_sinks=" + std::to_string(c.prompt_sinks);
  const std::string parameters = prompt + ",sinks=" + std::to_string(c.sinks) +
                                 ",recent=" + std::to_string(c.recent) +
                                 ",cycle=" + (c.literal ? "literal" : "unit") +
                                 ",select_left=" + (c.select_left ? "true" : "false") +
                                 ",criterion=" + c.criterion + ",reduce=" + shape.reduce;
  Harness h(Make(methods::TreeKv(), parameters), {.n_q_heads = shape.n_kv_heads * shape.group,
                                                  .n_kv_heads = shape.n_kv_heads,
                                                  .budget = c.budget});
  std::vector<PlainTree> heads(static_cast<size_t>(shape.n_kv_heads), PlainTree(c));
  std::string done;
  for (const Turn& turn : turns) {
    done += (turn.decode ? " step " : " chunk ") + std::to_string(turn.n_new);
    const Weights weights = testing::RandomWeights(++seed);
    turn.decode ? h.Decode(weights) : h.Prefill(turn.n_new, weights);
    for (int head = 0; head < shape.n_kv_heads; ++head) {
      PlainTree& tree = heads[static_cast<size_t>(head)];
      tree.Run(turn, [&](int64_t query, int64_t rank, int64_t position) {
        double sum = 0, max = 0;
        for (int q_head = head * shape.group; q_head < (head + 1) * shape.group; ++q_head) {
          const double one = weights({.q_head = q_head,
                                      .query = query,
                                      .rank = rank,
                                      .position = static_cast<Position>(position)});
          sum += one;
          max = std::max(max, one);
        }
        return std::string(shape.reduce) == "max" ? max : sum / shape.group;
      });
      ASSERT_EQ(h.Kept(0, head), tree.Kept()) << parameters << ":" << done;
    }
  }
}

// Whole prompts (docs/methods/semantics.md#treekv).
TEST(TreeKvChunksTest, WholePromptsAgreeWithPlainLists) {
  for (const int64_t n : {1, 11, 12, 13, 14, 15, 16, 20, 33, 64, 65, 66}) {
    for (const int64_t budget : {12, 13, 14, 15, 20, 32}) {
      for (const int64_t sinks : {0, 2}) {
        for (const int variant : {0, 1, 2}) {
          const auto seed = static_cast<uint64_t>(n * 50 + budget);
          Compare({.budget = budget,
                   .block = 5,
                   .prompt_sinks = sinks,
                   .literal = variant == 1,
                   .select_left = variant == 2},
                  5, {{.n_new = n}}, seed, {.group = 1 << (seed % 3)});
        }
      }
    }
  }
}

// Algorithm 1, in steps and in chunks that are read like steps.
TEST(TreeKvChunksTest, StreamsAgreeWithPlainLists) {
  const PlainTree::Config shapes[] = {{.budget = 7},
                                      {.budget = 15, .sinks = 2, .recent = 5},
                                      {.budget = 10, .sinks = 1, .recent = 3},
                                      {.budget = 3, .recent = 2}};
  uint64_t seed = 5000;
  for (PlainTree::Config c : shapes) {
    for (const char* criterion : {"mean", "accumulated", "position"}) {
      for (const int variant : {0, 1, 2, 3}) {
        c.criterion = criterion;
        c.literal = variant % 2 == 1;
        c.select_left = variant / 2 == 1;
        const Heads heads = {.group = 2, .reduce = seed % 2 == 0 ? "mean" : "max"};
        Compare(c, 0, std::vector<Turn>(250, Turn{.decode = true}), ++seed, heads);
        Compare(c, 0, std::vector<Turn>(20, Turn{.n_new = 13}), ++seed, heads);
      }
    }
  }
}

TEST(TreeKvChunksTest, AgreeWithPlainLists) {
  uint64_t seed = 1000;
  for (const int64_t budget : {20, 23, 41}) {
    for (const int64_t sinks : {0, 2}) {
      for (const char* criterion : {"mean", "accumulated", "position"}) {
        const PlainTree::Config c = {.budget = budget,
                                     .block = 5,
                                     .prompt_sinks = sinks,
                                     .sinks = 1,
                                     .recent = budget / 2,
                                     .criterion = criterion};
        for (const int64_t chunk : {1, 3, 5, 7, 10, 24, 60}) {
          ++seed;
          Compare(c, c.block, std::vector<Turn>(static_cast<size_t>(300 / chunk), {.n_new = chunk}),
                  seed, {.group = 2, .reduce = seed % 2 == 0 ? "mean" : "max"});
        }
      }
    }
  }
}

TEST(TreeKvChunksTest, AgreeWithPlainListsOverTheTurnsOfAChat) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<Turn> turns;
    for (uint64_t i = 0; i < 12; ++i) {
      turns.push_back({.n_new = static_cast<int64_t>((seed * 31 + i * 17) % 29 + 1)});
      for (uint64_t step = 0; step < (seed + i * 5) % 19; ++step) turns.push_back({.decode = true});
    }
    const std::string criterion =
        std::vector{"mean", "accumulated", "position"}[static_cast<size_t>(seed % 3)];
    Compare({.budget = 24, .block = 4, .sinks = 2, .recent = 10, .criterion = criterion}, 4, turns,
            seed * 1000, {.group = 1 + static_cast<int>(seed % 2)});
  }
}

// docs/methods/semantics.md#small-budgets: blocks of a quarter of what the sinks leave.
TEST(TreeKvChunksTest, SmallBudgetsHaveSmallBlocks) {
  const std::vector<Turn> turns = {{.n_new = 50}, {.decode = true}, {.n_new = 9}, {.n_new = 30}};
  Compare({.budget = 40, .block = 10, .prompt_sinks = 0, .sinks = 4, .recent = 16}, 32, turns, 1);
  Compare({.budget = 30, .block = 6, .prompt_sinks = 4, .sinks = 4, .recent = 11}, 32, turns, 2);
  Compare({.budget = 6, .block = 1, .prompt_sinks = 2, .sinks = 4, .recent = 0}, 32, turns, 3);
  for (int64_t budget = 5; budget <= 64; ++budget) {
    Harness h(Make(methods::TreeKv()), {.budget = budget});
    h.Prefill(200, testing::RandomWeights(static_cast<uint64_t>(budget)));
    const auto n_kept = static_cast<int64_t>(h.Kept().size());
    EXPECT_LE(n_kept, budget);
    // Missing are at most the rest of dividing the budget into blocks, and the rest of the last
    // block.
    EXPECT_GE(n_kept, budget - 2 * (BlockUnder(budget, 0, 32) - 1)) << budget;
    for (uint64_t i = 0; i < 40; ++i) h.Decode(testing::RandomWeights(i));
    EXPECT_EQ(h.Kept().size(), static_cast<size_t>(budget));
  }
}

// Entries kept per sixth of a text of 1800 tokens, averaged over all layers and heads.
std::array<double, 6> Sixths(const std::vector<Turn>& turns) {
  constexpr int kLayers = 8, kHeads = 8;
  Harness h(Make(methods::TreeKv()),
            {.n_layers = kLayers, .n_q_heads = kHeads, .n_kv_heads = kHeads, .budget = 512});
  uint64_t call = 0;
  for (const Turn& turn : turns) {
    ++call;
    const Weights weights = [call](const testing::Cell& cell) {
      const auto token = static_cast<uint64_t>(cell.position);
      const auto head = static_cast<uint64_t>(cell.layer * kHeads + cell.q_head);
      const auto query = static_cast<uint64_t>(cell.query);
      return Rng(((call * 4096 + query) * 64 + head) * 4096 + token).Uniform();
    };
    turn.decode ? h.Decode(weights) : h.Prefill(turn.n_new, weights);
  }
  EXPECT_EQ(h.n_seen(), 1800);
  std::array<double, 6> sixths = {};
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (const Position position : h.Kept(layer, head)) {
        sixths[static_cast<size_t>(position / 300)] += 1.0 / (kLayers * kHeads);
      }
    }
  }
  return sixths;
}

std::vector<Turn> Chunks(int64_t n, int64_t chunk) {
  std::vector<Turn> turns;
  for (; n > 0; n -= chunk) turns.push_back({.n_new = std::min(n, chunk)});
  return turns;
}

TEST(TreeKvChunksTest, ThinThePastAsTheWholePromptDoes) {
  const std::array<double, 6> whole = Sixths(Chunks(1800, 1800));
  // A text read in six turns, without and with a short answer to each.
  std::vector<Turn> answered;
  for (int turn = 0; turn < 6; ++turn) {
    answered.push_back({.n_new = 292});
    answered.insert(answered.end(), 8, Turn{.decode = true});
  }
  const std::vector<std::pair<const char*, std::vector<Turn>>> ways = {
      {"chunks of 64", Chunks(1800, 64)},
      {"chunks of 256", Chunks(1800, 256)},
      {"turns", Chunks(1800, 300)},
      {"answered turns", answered}};
  for (const auto& [name, turns] : ways) {
    const std::array<double, 6> sixths = Sixths(turns);
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_NEAR(sixths[i], whole[i], 0.25 * whole[i]) << name << ", sixth " << i;
    }
  }
}

// With --kv-ratio a second turn has another budget and block size: a dropped block is remembered by
// its place in the text.
TEST(TreeKvChunksTest, DroppedBlocksSurviveABudgetChange) {
  const auto method = std::make_shared<testing::UnderBudget>(Make(methods::TreeKv()), 40);
  Harness harness(method, {.budget = 40});
  harness.Prefill(400, [](const testing::Cell& cell) { return 1.0 / (1 + cell.position); });
  method->budget = 140;
  harness.Prefill(1000, [](const testing::Cell& cell) {
    return cell.position >= 1216 && cell.position < 1248 ? 1 : .001;
  });
  const Positions kept = harness.Kept();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1216), 1);
}

}  // namespace
}  // namespace winnow::compression
