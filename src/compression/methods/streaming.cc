// StreamingLLM (arXiv:2309.17453): keeps the first `sinks` tokens and the newest ones.
#include "compression/methods/methods.h"
#include "compression/methods/sinks_and_newest.h"

namespace winnow::compression::methods {
namespace {

struct StreamingConfig {
  int sinks = 4;  // attention sinks, tokens  [paper, section 3.2]
  PositionMode positions = PositionMode::kReassigned;  // [authors' code]
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(StreamingConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  VisitPositions(c.positions, v);
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const StreamingConfig& c) {
  return SinksAndNewest(c.sinks,
                        {.positions = c.positions, .per_query_head = c.heads == Heads::kQuery});
}

}  // namespace

MethodEntry Streaming() {
  return Entry<StreamingConfig, Make, PromisesSinksAndNewest<StreamingConfig>>(
      "streaming", "the first tokens and the newest ones", "StreamingLLM, arXiv:2309.17453",
      {"positions=original", "heads=query"});
}

}  // namespace winnow::compression::methods
