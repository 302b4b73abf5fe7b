#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compression/method.h"
#include "compression/parameters.h"

// The parts of a method: score x budget x select x merge x positions x when, + protect
// (docs/methods/semantics.md#phases). Parts are immutable and hold no sequence's state.
//
// Entries are named by rank: their place among those of their head, from the oldest (0) to the
// newest, so that results do not depend on slots. The region [begin, end) holds the entries that
// are neither sinks nor recent: only they can be evicted.
namespace winnow::compression {

struct Region {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// How important each entry is. Entries with larger scores are kept.
class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual std::string_view name() const = 0;
  virtual Needs needs() const { return {}; }
  // Adds the call's taps to the columns. Runs in every call, before anything is decided.
  virtual void Observe(const LayerCall&) const {}
  // Scores of the ranks in `region` of one KV head: [region.size()]. Runs only when there is
  // something to evict.
  virtual void Score(const LayerCall& call, int kv_head, Region region,
                     std::span<double> out) const = 0;
  // The same for several heads, at most kMaxHeads: an expensive score can share the threads between
  // them.
  static constexpr size_t kMaxHeads = 16;
  struct HeadScores {
    int kv_head = 0;
    Region region;
    std::span<double> out;
  };
  virtual void ScoreHeads(const LayerCall& call, std::span<const HeadScores> heads) const {
    for (const HeadScores& head : heads) Score(call, head.kv_head, head.region, head.out);
  }
  // Whether heads of equal length get the same scores (a vote of the whole layer). The layer is
  // then scored once.
  virtual bool one_score_per_layer() const { return false; }
  // How many rows of attention a score is the sum of: scores divided by it are mean weights. 1 if
  // scores are not such sums.
  virtual int n_rows_summed(const LayerCall&) const { return 1; }
  // Whether the score reads many stored rows after a generated token and divides that work between
  // the threads (DecisionPolicy::shares_threads).
  virtual bool shares_threads() const { return false; }
  // Whether an entry's score does not depend on the region passed to Score.
  virtual bool independent_of_region() const { return false; }
};

// How many entries each KV head of the layer keeps in its region.
struct BudgetInput {
  const LayerCall& call;
  Region region;                                // of the longest head
  int64_t n_protected = 0;                      // sinks and recent entries, kept on top
  std::span<const std::vector<double>> scores;  // [kv_head][rank in the region]
};
class Budgeter {
 public:
  virtual ~Budgeter() = default;
  virtual std::string_view name() const = 0;
  virtual Needs needs() const { return {}; }
  virtual void Observe(const LayerCall&) const {}
  // False: Sizes finds the sizes itself. A budget, if given, is then an upper limit.
  virtual bool needs_budget() const { return true; }
  // BudgetPolicy::held: false if all layers together may keep more than their budgets.
  virtual bool holds_budget() const { return true; }
  // Whether Sizes reads the scores. If not, they are computed only for heads that must evict.
  virtual bool reads_scores() const { return false; }
  // out [kv_head]: entries of the region that stay, 0..region.size().
  virtual void Sizes(const BudgetInput& input, std::span<int64_t> out) const = 0;
  // As in Method; the composition protects `n_protected` entries.
  virtual int64_t MaxSlots(int64_t budget, int64_t n, int64_t n_protected) const {
    (void)n_protected;
    return std::min(budget, n);
  }
  virtual int64_t TotalSlots(int64_t budget, int64_t n, int64_t n_protected, int n_layers) const {
    (void)n_protected;
    return std::min(budget, n) * n_layers;
  }
  virtual int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n,
                             int64_t n_protected) const {
    (void)layer, (void)n_layers, (void)n_protected;
    return std::min(budget, n);
  }
};

// Which entries of the region are evicted.
struct SelectInput {
  const LayerCall& call;
  int kv_head = 0;
  Region region;
  int64_t n_keep = 0;              // of the region, < region.size()
  std::span<const double> scores;  // [region.size()]
};
class Selector {
 public:
  virtual ~Selector() = default;
  virtual std::string_view name() const = 0;
  virtual cache::StateShape state() const { return {}; }
  virtual Needs needs() const { return {.prefill = {}, .decode = {}, .state = state()}; }
  virtual void Observe(const LayerCall&) const {}
  // evicted: out, ranks (counted from rank 0 of the head, not from the region), ascending. At least
  // region.size() - n_keep of them: selectors of whole blocks may keep fewer than n_keep.
  virtual void Evict(const SelectInput& input, std::vector<int32_t>& evicted) const = 0;
  // The part of the region whose scores Evict reads; the others need not be computed. `scores` is
  // still empty here.
  virtual Region Reads(const SelectInput& input) const { return input.region; }
};

struct Protect {
  int64_t sinks = 0;   // oldest entries that are never evicted
  int64_t recent = 0;  // newest entries that are never evicted
};

// Whether entries are selected per KV head, for all query heads of its group, or per query head, as
// the authors' code of several methods does (StoragePolicy::per_query_head).
enum class Heads { kKv, kQuery };
inline constexpr std::string_view kHeadsHelp =
    "select entries per KV head, or per query head (the cache then grows by the group size)";

// The position mode of the keys, as a parameter of methods that support both.
template <class Visitor>
void VisitPositions(
    PositionMode& positions, Visitor& v,
    std::string_view help = "positions of the keys: place in the text, or rank in the cache") {
  static_assert(static_cast<int>(PositionMode::kOriginal) == 0 &&
                static_cast<int>(PositionMode::kReassigned) == 1);
  v("positions", positions, help, Choices{"original", "reassigned"});
}

// Sinks and recent entries as parameters of methods.
inline constexpr std::string_view kRecentHelp =
    "newest tokens that are never evicted: a count, or a share of the budget that includes the "
    "sinks";
struct Regions {
  int64_t sinks = 0;
  CountOrShare recent = 0;  // a share includes the sinks

  Protect Under(int64_t budget) const {
    const int64_t n_recent = recent.Under(budget) - (recent.is_share() ? sinks : 0);
    return {.sinks = sinks, .recent = std::max<int64_t>(0, n_recent)};
  }
  // One entry more than are protected.
  int64_t MinBudget() const { return sinks + recent.count() + 1; }
};

// How the evicted entries are merged into kept ones, for all heads of a layer at once: one search
// can serve several heads.
struct MergeInput {
  const LayerCall& call;
  Protect protected_entries;
  std::span<const std::vector<int32_t>> evicted;  // [kv_head]: ranks, ascending
};
class Merger {
 public:
  virtual ~Merger() = default;
  virtual std::string_view name() const = 0;
  virtual Needs needs() const { return {}; }
  virtual void Observe(const LayerCall&) const {}
  // Adds merges to `plan`. The caller fills its evict lists.
  virtual void Merge(const MergeInput& input, Plan& plan) const = 0;
  // Whether it merges keys. A merged key has no single position, so keys must be stored as rotated
  // at their place in the text.
  virtual bool merges_keys() const { return false; }
};

enum class When {
  kPrefill,  // once, after the prompt (or after every chunk of it)
  kStep,     // in every call
};

// A method composed of parts.
struct Composition {
  StoragePolicy storage = {};
  int64_t min_budget = 1;  // BudgetPolicy::min; the rest of Traits follows from the parts
  std::shared_ptr<const Scorer> score = {};
  std::shared_ptr<const Budgeter> budget = {};
  std::shared_ptr<const Selector> select = {};
  std::shared_ptr<const Merger> merge = {};  // null: evicted entries are dropped
  // Sinks and recent entries under a budget (slots per KV head). Window methods shrink their window
  // when the budget is small (docs/methods/semantics.md#small-budgets).
  std::function<Protect(const Protect& configured, const LayerCall& call)> protect =
      {};  // null: as configured
  Regions protected_entries = {};
  When when = When::kPrefill;
  // The selector of prefill calls, if it differs from that of decode (TreeKV's blocks), and what is
  // protected in them. Set both or none.
  struct {
    std::shared_ptr<const Selector> select = {};
    std::function<Protect(const LayerCall& call)> protect = {};
  } prefill = {};
};

// The method that runs the parts (compose.cc).
MethodPtr Compose(Composition composition);

// Window methods: the last `recent` entries are the observation window. It shrinks to
// max(1, floor(budget / 2)) if the budget is not larger (docs/methods/semantics.md#small-budgets).
Protect WindowWithin(const Protect& configured, const LayerCall& call);
int64_t WindowUnder(int64_t budget, int64_t window);
// Entries per block for methods that keep at least `sinks` entries, one block and a window of the
// size of a block: `block`, or max(1, (budget - sinks) / 4) if the budget is below
// sinks + 2 * block (docs/methods/semantics.md#small-budgets).
int64_t BlockUnder(int64_t budget, int64_t sinks, int64_t block);

}  // namespace winnow::compression
