#pragma once

#include <memory>

#include "compression/parameters.h"
#include "compression/parts.h"

// The scorers. Each config's defaults are those of the paper it comes from.
namespace winnow::compression::score {

using ScorerPtr = std::shared_ptr<const Scorer>;

// The reduction over the query heads of a group (docs/methods/semantics.md#query-groups).
enum class Reduce { kMean, kMax, kSum };

// Newer entries score higher. Needs no attention.
ScorerPtr Age();

// Attention received so far: the running column sum of the KV head [H2O, arXiv:2306.14048].
// State: one column.
ScorerPtr Heavy(Reduce reduce = Reduce::kMean);
// Heavy's Observe for one head: heads may be observed in parallel.
void ObserveHeavy(const LayerCall& call, int kv_head);

// Sum over the last `window` queries of the prompt, then smoothed over neighbouring entries
// [SnapKV, arXiv:2404.14469]. The window is shorter if the budget is not larger than it
// (WindowUnder).
enum class Pool { kNone, kAverage, kMax };
constexpr int kMaxKernel = 1023;  // smoothing width: cost grows with it
struct WindowConfig {
  int window = 32;
  Pool pool = Pool::kMax;
  int kernel = 7;               // odd
  bool prefix_softmax = false;  // the softmax is over the entries before the window (HBW-KV, Eq. 3)
  Reduce reduce = Reduce::kMean;
};
ScorerPtr Window(const WindowConfig& config);

template <class Visitor>
void Visit(WindowConfig& c, Visitor& v) {
  v("window", c.window, "observation window: last prompt tokens that vote, and stay",
    Range{1, 1 << 20});
  v("pool", c.pool, "smoothing of the votes over neighbours", Choices{"none", "average", "max"});
  v("kernel", c.kernel, "smoothing width, odd", Range{1, kMaxKernel});
  v("prefix_softmax", c.prefix_softmax, "normalise the votes over what precedes the window");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}
// Error: an even smoothing width. `context` starts the message.
Result<void> CheckPoolWidth(std::string_view context, int kernel);

// Attention received since the entry entered the cache [TreeKV, Algorithm 1]. State: two columns,
// the sum and when the entry entered; one number per layer.
struct RunningMeanConfig {
  // kMean: per query that saw the entry. The paper names two other criteria without a formula; ours
  // are: kAccumulated: the sum. kPosition: the mean, with each weight multiplied by the number of
  // entries its query saw, so that an equal share counts 1 for every query. (For a chunk read as
  // column sums: multiplied by the mean of that number over the queries that saw the entry.)
  enum class Criterion { kMean, kAccumulated, kPosition };
  Criterion criterion = Criterion::kMean;
  // The queries that a chunk of a prompt adds: its last `prompt_queries` (TreeKV's block prefill;
  // fewer if the budget is too small for blocks of that size after `prompt_sinks` tokens:
  // BlockUnder); 0: all.
  int prompt_queries = 0;
  int prompt_sinks = 0;
  Reduce reduce = Reduce::kMean;
};
ScorerPtr RunningMean(const RunningMeanConfig& config);

template <class Visitor>
void Visit(RunningMeanConfig& c, Visitor& v) {
  v("prompt_queries", c.prompt_queries, "last tokens of a prompt, or chunk, that count; 0: all",
    Range{0, 1 << 20});
  v("criterion", c.criterion,
    "mean attention per query, its sum, or the mean weighted by the entries each query saw",
    Choices{"mean", "accumulated", "position"});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

// Entries with small keys stay: minus the norm of the stored key [arXiv:2406.11430]. Needs no
// attention. State: one column.
ScorerPtr KeyNorm();

// Entries with keys unlike the others stay: minus the cosine to the mean of all unit keys [KeyDiff,
// arXiv:2504.15364]. Needs no attention; reads every stored key of the head.
ScorerPtr KeyDifference();

// Attention of the newest query alone [TOVA, arXiv:2401.06104], or of the newest `queries` of a
// prompt: the mean over those that see the entry.
struct LastRowConfig {
  int queries = 1;
  bool per_layer = true;  // the mean over all heads of the layer, which then keep the same entries
  Reduce reduce = Reduce::kMean;
};
ScorerPtr LastRow(const LastRowConfig& config);

template <class Visitor>
void Visit(LastRowConfig& c, Visitor& v) {
  v("queries", c.queries, "newest tokens of a prompt that vote", Range{1, 1 << 20});
  v("per_layer", c.per_layer, "one vote of all heads of a layer, instead of one per KV head");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

// Mean weight of an entry from the last queries of a prompt that see it. These are `queries`
// queries, or a share of the sequence's tokens [ReFreeKV, ranking by attention].
struct LastMeanConfig {
  int queries = 1;
  double queries_share = 0;  // above 0: instead of `queries`
  bool per_layer = true;     // the mean over all heads of the layer
};
ScorerPtr LastMean(const LastMeanConfig& config);

// Minus the number of the last `window` queries that gave the entry less than an equal share of
// their attention [Scissorhands, arXiv:2305.17118]. State: one bit per entry and query of the
// window.
struct HistoryConfig {
  int window = 400;
  Reduce reduce = Reduce::kMean;
};
ScorerPtr History(const HistoryConfig& config);

template <class Visitor>
void Visit(HistoryConfig& c, Visitor& v) {
  v("window", c.window, "recent queries that count", Range{1, 1 << 16});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

}  // namespace winnow::compression::score
