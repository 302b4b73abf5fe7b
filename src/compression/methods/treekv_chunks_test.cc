#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/parts.h"
#include "compression/testing/harness.h"
#include "compression/testing/under_budget.h"

// TreeKV over the chunks of a prompt and the turns of a chat (docs/methods/semantics.md#chunks).
namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

// A call of the model: a chunk or turn, or one decode step.
struct Turn {
  int64_t n_new = 1;
  bool decode = false;
};

// TreeKV on explicit lists, for one KV head: the tree of blocks and, in decode, that of entries.
class PlainTree {
 public:
  struct Config {
    int64_t budget, block, prompt_sinks, sinks, recent;
  };
  explicit PlainTree(const Config& c) : c_(c) {}

  // `weight` of a query of the call for an entry at a rank.
  template <class Weight>
  void Run(const Turn& turn, const Weight& weight) {
    const int64_t n_old = std::ssize(entries_);
    const int64_t first_row = turn.decode ? 0 : std::max<int64_t>(0, turn.n_new - c_.block);
    for (int64_t i = 0; i < turn.n_new; ++i) entries_.push_back({.position = n_seen_++});
    for (int64_t row = first_row; row < turn.n_new; ++row) {
      for (int64_t rank = 0; rank <= n_old + row; ++rank) {
        Entry& entry = entries_[static_cast<size_t>(rank)];
        entry.sum += weight(row, rank, entry.position);
        entry.count += 1;
      }
    }
    if (std::ssize(entries_) <= c_.budget) return;
    turn.decode ? EvictEntry() : EvictBlocks();
  }

  Positions Kept() const {
    Positions kept;
    for (const Entry& entry : entries_) kept.push_back(static_cast<Position>(entry.position));
    return kept;
  }

 private:
  struct Entry {
    int64_t position = 0;
    double sum = 0;
    double count = 0;
    bool arrived = false;  // its block is, or was, in the list
    double mean() const { return sum / count; }
  };

  void EvictEntry() {
    const int64_t n_middle = c_.budget - c_.sinks - c_.recent;
    const auto left = entries_.begin() + c_.sinks + entry_pointer_;
    entries_.erase(left->mean() > (left + 1)->mean() ? left + 1 : left);
    entry_pointer_ = (entry_pointer_ + 1) % n_middle;
  }

  int64_t BlockIndex(const Entry& entry) const {
    return (entry.position - c_.prompt_sinks) / c_.block;
  }
  bool Sinks(const Entry& entry) const { return entry.position < c_.prompt_sinks; }
  double Score(int64_t block) const {
    double sum = 0, n = 0;
    for (int64_t rank = 0; rank < std::ssize(entries_) - c_.block; ++rank) {
      const Entry& entry = entries_[static_cast<size_t>(rank)];
      if (Sinks(entry) || BlockIndex(entry) != block) continue;
      sum += entry.mean();
      n += 1;
    }
    return sum / n;
  }
  // Removes the entries of a block that have left the window.
  void Remove(int64_t block) {
    std::vector<Entry> rest;
    for (const Entry& entry : entries_) {
      if (Sinks(entry) || BlockIndex(entry) != block || !entry.arrived) rest.push_back(entry);
    }
    entries_ = rest;
    if (block == newest_block_) newest_is_gone_ = true;
  }
  void EvictAtPointer(std::vector<int64_t>& list) {
    size_t victim = 0;
    if (list.size() > 1) {
      block_pointer_ %= list.size() - 1;
      const bool left_stays = Score(list[block_pointer_]) > Score(list[block_pointer_ + 1]);
      victim = block_pointer_ + (left_stays ? 1 : 0);
      block_pointer_ = (block_pointer_ + 1) % (list.size() - 1);
    }
    Remove(list[victim]);
    list.erase(list.begin() + static_cast<int64_t>(victim));
  }
  void EvictBlocks() {
    std::vector<int64_t> list, arriving;
    if (!newest_is_gone_) newest_block_ = -1;
    for (const Entry& entry : entries_) {
      if (!Sinks(entry) && entry.arrived && (list.empty() || list.back() != BlockIndex(entry))) {
        list.push_back(BlockIndex(entry));
      }
    }
    for (int64_t rank = 0; rank < std::ssize(entries_) - c_.block; ++rank) {
      Entry& entry = entries_[static_cast<size_t>(rank)];
      if (entry.arrived || Sinks(entry)) continue;
      entry.arrived = true;
      const bool joins = !list.empty() && list.back() == BlockIndex(entry);
      const bool late = BlockIndex(entry) == gone_before_;
      if (joins) newest_block_ = BlockIndex(entry);
      if (late || BlockIndex(entry) == newest_block_) continue;
      arriving.push_back(newest_block_ = BlockIndex(entry));
      newest_is_gone_ = false;
    }
    // Removes tokens that left the window after their block was dropped.
    if (gone_before_ >= 0) Remove(gone_before_);
    const int64_t n_blocks = (c_.budget - c_.prompt_sinks - c_.block) / c_.block;
    for (const int64_t block : arriving) {
      list.push_back(block);
      if (std::ssize(list) > n_blocks) EvictAtPointer(list);
    }
    while (std::ssize(entries_) > c_.budget) EvictAtPointer(list);
    gone_before_ = newest_is_gone_ ? newest_block_ : -1;
  }

  Config c_;
  std::vector<Entry> entries_;
  int64_t n_seen_ = 0;
  int64_t newest_block_ = -1;
  bool newest_is_gone_ = false;
  int64_t gone_before_ = -1;
  size_t block_pointer_ = 0;
  int64_t entry_pointer_ = 0;
};

// `block` is the configured size, c.block the one that the budget allows.
void Compare(const PlainTree::Config& c, int64_t block, const std::vector<Turn>& turns,
             uint64_t seed) {
  const std::string parameters =
      "block=" + std::to_string(block) + ",prefill_sinks=" + std::to_string(c.prompt_sinks) +
      ",sinks=" + std::to_string(c.sinks) + ",recent=" + std::to_string(c.recent);
  Harness h(Make(methods::TreeKv(), parameters),
            {.n_q_heads = 2, .n_kv_heads = 2, .budget = c.budget});
  std::vector<PlainTree> heads(2, PlainTree(c));
  std::string done;
  for (const Turn& turn : turns) {
    done += (turn.decode ? " step " : " chunk ") + std::to_string(turn.n_new);
    const Weights weights = testing::RandomWeights(++seed);
    turn.decode ? h.Decode(weights) : h.Prefill(turn.n_new, weights);
    for (int head = 0; head < 2; ++head) {
      PlainTree& tree = heads[static_cast<size_t>(head)];
      tree.Run(turn, [&](int64_t query, int64_t rank, int64_t position) {
        return weights({.q_head = head,
                        .query = query,
                        .rank = rank,
                        .position = static_cast<Position>(position)});
      });
      ASSERT_EQ(h.Kept(0, head), tree.Kept()) << parameters << ":" << done;
    }
  }
}

TEST(TreeKvChunksTest, AgreeWithPlainLists) {
  uint64_t seed = 1000;
  for (const int64_t budget : {20, 23, 41}) {
    for (const int64_t sinks : {0, 2}) {
      const PlainTree::Config c = {
          .budget = budget, .block = 5, .prompt_sinks = sinks, .sinks = 1, .recent = budget / 2};
      for (const int64_t chunk : {1, 3, 5, 7, 10, 24, 60}) {
        Compare(c, c.block, std::vector<Turn>(static_cast<size_t>(300 / chunk), {.n_new = chunk}),
                ++seed);
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
    Compare({.budget = 24, .block = 4, .prompt_sinks = 0, .sinks = 2, .recent = 10}, 4, turns,
            seed * 1000);
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
