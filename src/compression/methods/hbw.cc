// HBW-KV: the last `window` prompt queries vote for whole blocks of tokens, chosen in rounds: first
// the best of the prompt, then the best of each of several regions of it.
// Where the paper is silent: rounds get equal shares, the budget includes the window, no smoothing.
#include "compression/budget/budget.h"
#include "compression/merge/merge.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

// What stays of a block [Table 2]. kNone: whole blocks stay or go, the method itself; otherwise the
// blocks are as many as entries may stay, and each leaves one vector.
enum class Representative { kNone, kFirst, kLast, kMax, kAverage };

struct HbwConfig {
  int window = 32;              // [ours; SnapKV's]
  select::RoundsConfig blocks;  // [paper: c/32 tokens, rounds 1 and 8]
  bool prefix_softmax = false;  // [true: Eq. 3; false: SnapKV's form]
  score::Reduce reduce = score::Reduce::kMean;
  Representative representative = Representative::kNone;
};

template <class Visitor>
void Visit(HbwConfig& c, Visitor& v) {
  v("window", c.window, "observation window: last prompt tokens that vote, and stay",
    Range{1, 1 << 20});
  Visit(c.blocks, v);
  v("prefix_softmax", c.prefix_softmax, "normalise the votes over what precedes the window");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
  v("representative", c.representative,
    "one vector of each of as many blocks as fit, instead of whole blocks in rounds (ablation)",
    Choices{"none", "first", "last", "max", "avg"});
}

select::SelectorPtr Selector(const HbwConfig& c) {
  using Which = select::RepresentativesConfig::Which;
  switch (c.representative) {
    case Representative::kFirst:
      return select::Representatives({.which = Which::kFirst});
    case Representative::kLast:
    case Representative::kAverage:  // the others flow into the last
      return select::Representatives({.which = Which::kLast});
    case Representative::kMax:
      return select::Representatives({.which = Which::kBest});
    case Representative::kNone:
      break;
  }
  return select::Rounds(c.blocks);
}

Result<MethodPtr> Make(const HbwConfig& c) {
  return Compose({.traits = {},
                  .score = score::Window({.window = c.window,
                                          .pool = score::Pool::kNone,
                                          .prefix_softmax = c.prefix_softmax,
                                          .reduce = c.reduce}),
                  .budget = budget::Uniform(),
                  .select = Selector(c),
                  .merge = c.representative == Representative::kAverage ? merge::Next() : nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.window},
                  .when = When::kPrefill});
}

}  // namespace

MethodEntry Hbw() {
  return Entry<HbwConfig, Make>("hbw", "blocks of tokens, the best of all and of every region",
                                "HBW-KV");
}

}  // namespace winnow::compression::methods
