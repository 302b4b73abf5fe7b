// HBW-KV: the last `window` prompt queries vote for whole blocks of tokens, which are selected in
// rounds: first the best blocks of the prompt, then the best of each of several regions. Votes are
// pooled as in SnapKV: with blocks of one token and one round this is SnapKV, as the paper says.
// Where the paper is silent, rounds get equal shares and the budget includes the window.
#include "compression/budget/budget.h"
#include "compression/merge/merge.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

// What is kept of a block [Table 2]. kNone is the method itself: whole blocks stay or go. Otherwise
// there are as many blocks as entries to keep, and each keeps one vector.
enum class Representative { kNone, kFirst, kLast, kMax, kAverage };

struct HbwConfig {
  score::WindowConfig score;    // [SnapKV: window 32, max pooling over 7; prefix_softmax: Eq. 3]
  select::RoundsConfig blocks;  // [paper: c/32 tokens, rounds 1 and 8]
  Representative representative = Representative::kNone;
};

template <class Visitor>
void Visit(HbwConfig& c, Visitor& v) {
  Visit(c.score, v);
  Visit(c.blocks, v);
  v("representative", c.representative,
    "one vector per block, for as many blocks as fit, instead of whole blocks in rounds (ablation)",
    Choices{"none", "first", "last", "max", "avg"});
}

select::SelectorPtr Selector(const HbwConfig& c) {
  using Which = select::RepresentativesConfig::Which;
  switch (c.representative) {
    case Representative::kFirst:
      return select::Representatives({.which = Which::kFirst});
    case Representative::kLast:
    case Representative::kAverage:  // the others are merged into the last
      return select::Representatives({.which = Which::kLast});
    case Representative::kMax:
      return select::Representatives({.which = Which::kBest});
    case Representative::kNone:
      break;
  }
  return select::Rounds(c.blocks);
}

Result<MethodPtr> Make(const HbwConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("hbw", c.score.kernel));
  return Compose({.score = score::Window(c.score),
                  .budget = budget::Uniform(),
                  .select = Selector(c),
                  .merge = c.representative == Representative::kAverage ? merge::Next() : nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.score.window},
                  .when = When::kPrefill});
}

Promise Promises(const HbwConfig& c, int64_t budget) {
  return {
      .exact = c.representative != Representative::kNone,
      .recent = WindowUnder(budget, c.score.window),
      .merging = c.representative == Representative::kAverage ? Merging::kHull : Merging::kNone};
}

}  // namespace

MethodEntry Hbw() {
  return Entry<HbwConfig, Make, Promises>("hbw",
                                          "blocks of tokens, the best of all and of every region",
                                          "HBW-KV", {"representative=avg"});
}

}  // namespace winnow::compression::methods
