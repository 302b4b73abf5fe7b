// StreamingLLM (arXiv:2309.17453): the first `sinks` tokens and the newest ones.
#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct StreamingConfig {
  enum class Positions { kReassigned, kOriginal };
  int sinks = 4;                                 // attention sinks, tokens  [paper, section 3.2]
  Positions positions = Positions::kReassigned;  // [authors' code]
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(StreamingConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("positions", c.positions, "of the keys: their place in the cache, or in the text",
    Choices{"reassigned", "original"});
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const StreamingConfig& c) {
  return Compose(
      {.traits = {.positions = c.positions == StreamingConfig::Positions::kReassigned
                                   ? PositionMode::kReassigned
                                   : PositionMode::kOriginal,
                  .evicts_in_decode = true,
                  .per_query_head = c.heads == Heads::kQuery},
       .score = score::Age(),
       .budget = budget::Uniform(),
       .select = select::TopK(),
       .merge = nullptr,
       // More sinks than there is room for: all the room (docs/methods/semantics.md#small-budgets).
       .protect = [](const Protect& p, const LayerCall& call) -> Protect {
         return {.sinks = std::min(p.sinks, call.budget), .recent = 0};
       },
       .protected_entries = {.sinks = c.sinks, .recent = 0},
       .when = When::kStep});
}

Promise Promises(const StreamingConfig& c, int64_t budget) {
  const int64_t sinks = std::min<int64_t>(c.sinks, budget);
  return {.exact = true, .sinks = sinks, .recent = budget - sinks};
}

}  // namespace

MethodEntry Streaming() {
  return Entry<StreamingConfig, Make, Promises>("streaming", "the first tokens and the newest ones",
                                                "StreamingLLM, arXiv:2309.17453",
                                                {"positions=original", "heads=query"});
}

}  // namespace winnow::compression::methods
