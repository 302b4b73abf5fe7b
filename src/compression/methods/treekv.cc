// TreeKV: of two neighbours the one with the lower mean attention is evicted. The pair moves from
// the oldest entry to the newest and wraps around, so that the past thins out like a tree and the
// present stays dense. A prompt is compressed by the same rule over blocks of tokens.
// Differs from the paper: the pointer of Algorithm 1 moves by one, as the text and figures say
// (line 16 prints two: cycle=literal); the tree covers only entries between the sinks and the
// recent tokens; one set per KV head, by the mean over its query heads.
#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct TreeKvConfig {
  enum class Prefill { kBlock, kStep };
  int sinks = 4;                                   // [paper, experiments: 4 of 1024]
  CountOrShare recent = CountOrShare::Share(0.5);  // [508 of 1024]
  Prefill prefill = Prefill::kBlock;               // [paper, LongBench]
  int block = 32;         // also the observation window  [ours; SnapKV's window]
  int prefill_sinks = 0;  // [ours]
  score::RunningMeanConfig::Criterion criterion =
      score::RunningMeanConfig::Criterion::kMean;  // [paper: the best of three]
  select::Cycle cycle = select::Cycle::kUnit;
  bool select_left = false;
  score::Reduce reduce = score::Reduce::kMean;
  PositionMode positions = PositionMode::kReassigned;  // [paper]
};

template <class Visitor>
void Visit(TreeKvConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first entries that always stay while generating", Range{0, 1 << 20});
  v("recent", c.recent,
    "newest entries that are never evicted while generating: a count, or a share of the budget "
    "that includes the sinks");
  v("prefill", c.prefill, "prompts are read block by block, or token by token like generated ones",
    Choices{"block", "step"});
  v("block", c.block, "tokens per block of a prompt; the last block votes, and stays",
    Range{1, 1 << 20});
  v("prefill_sinks", c.prefill_sinks, "first tokens of a prompt that always stay",
    Range{0, 1 << 20});
  v("criterion", c.criterion,
    "evict the neighbour with less attention: mean per query, sum, or mean weighted by the entries "
    "each query saw",
    Choices{"mean", "accumulated", "position"});
  v("cycle", c.cycle, "the pointer moves by one, or by two as in Algorithm 1",
    Choices{"unit", "literal"});
  v("select_left", c.select_left, "ablation: keep the older of the two, whatever the scores");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
  VisitPositions(c.positions, v);
}

Result<MethodPtr> Make(const TreeKvConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  const bool blocks = c.prefill == TreeKvConfig::Prefill::kBlock;
  Composition tree = {.storage = {.positions = c.positions},
                      .min_budget = regions.MinBudget(),
                      .score = score::RunningMean({.criterion = c.criterion,
                                                   .prompt_queries = blocks ? c.block : 0,
                                                   .prompt_sinks = c.prefill_sinks,
                                                   .reduce = c.reduce}),
                      .budget = budget::Uniform(),
                      .select = select::Pair({.cycle = c.cycle, .select_left = c.select_left}),
                      .merge = nullptr,
                      .protected_entries = regions,
                      .when = When::kStep};
  if (blocks) {
    // Room for at least one block of the prompt, and the window.
    tree.min_budget = std::max<int64_t>(tree.min_budget, c.prefill_sinks + 2);
    tree.prefill = {
        .select =
            select::TreeBlocks({.block = c.block, .cycle = c.cycle, .select_left = c.select_left}),
        .protect = [sinks = c.prefill_sinks, block = c.block](const LayerCall& call) -> Protect {
          return {.sinks = sinks, .recent = BlockUnder(call.budget, sinks, block)};
        }};
  }
  return Compose(std::move(tree));
}

Promise Promises(const TreeKvConfig& c, int64_t budget) {
  const int64_t recent = Regions{c.sinks, c.recent}.Under(budget).recent;
  if (c.prefill == TreeKvConfig::Prefill::kStep) {
    return {.exact = true, .sinks = c.sinks, .recent = recent};
  }
  // A prompt keeps its newest block; its other blocks are selected by score.
  return {.exact = false,
          .sinks = c.prefill_sinks,
          .recent = std::min(BlockUnder(budget, c.prefill_sinks, c.block), recent),
          .prompt_by_steps = false};
}

}  // namespace

MethodEntry TreeKv() {
  return Entry<TreeKvConfig, Make, Promises>(
      "treekv", "evicts one of two neighbours in turn: the older the text, the sparser its entries",
      "TreeKV", {"prefill=step", "positions=original"});
}

}  // namespace winnow::compression::methods
