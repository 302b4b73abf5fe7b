// EMS (evict-then-merge, arXiv:2412.08521): the best entries found classes; the next best join the
// most similar class or are evicted. A class is one stored row, the weighted mean of its members'
// directions and values. Each member keeps its position and the length of its key, and takes part
// in attention on its own.
// Implements Method rather than combining parts: entries fall into three kinds and share rows
// (cache::HeadPlan::shares).
// Where the paper is silent we chose which entry leaves a full table, how important a class is, and
// that entries without a class leave attention altogether (docs/methods/semantics.md#ems).
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "compression/methods/ems_classes.h"
#include "compression/methods/ems_plan.h"
#include "compression/methods/ems_state.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::methods {
namespace {

struct EmsConfig {
  // kReassigned, kOriginal: keys are compared and merged before RoPE ("without position"), then
  // rotated to their rank or their place in the text. kBaked: compared and merged after RoPE ("with
  // position").
  enum class Positions { kReassigned, kOriginal, kBaked };
  enum class Compare { kKey, kValue, kBoth };
  int sinks = 0;            // [TreeKV's experiments: 4]
  CountOrShare recent = 0;  // local tokens, if more than the window  [same: 0.5]
  int window = 32;          // Lw, local tokens  [paper; 16 for needle tests]
  int kernel = 7;           // smoothing of scores in prefill, odd  [paper]
  double gamma = 4;         // entries per stored row, at most  [paper]
  double tau = 0.6;         // minimum similarity of what is merged  [paper]
  int n_protect = 0;        // best classes that nothing is merged into  [paper, appendix C: none]
  Compare similarity = Compare::kBoth;           // [paper; the others: ablation]
  Positions positions = Positions::kReassigned;  // [ours: the paper evaluates both]
  ems::Attention score = ems::Attention::kBoth;  // [paper; the others: ablation]
  score::Reduce reduce = score::Reduce::kMean;
};

template <class Visitor>
void Visit(EmsConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  v("window", c.window,
    "newest tokens that always stay, if more than `recent`, and the queries of the local score",
    Range{1, 1 << 16});
  v("kernel", c.kernel, "smoothing width of the scores of a prompt, odd",
    Range{1, score::kMaxKernel});
  v("gamma", c.gamma, "entries per stored row, at most", Range{1, 1000});
  v("tau", c.tau, "minimum similarity to merge; above 1: never", Range{-1, 2});
  v("n_protect", c.n_protect, "best classes that nothing is merged into", Range{0, 1 << 20});
  v("similarity", c.similarity, "vectors compared; both: the product of the two cosines",
    Choices{"key", "value", "both"});
  v("positions", c.positions,
    "positions of the keys: rank in the cache, place in the text, or place in the text with RoPE "
    "applied "
    "before merging",
    Choices{"reassigned", "original", "baked"});
  v("score", c.score,
    "attention that counts: the larger of both, all received so far, or that of the latest window",
    Choices{"both", "global", "local"});
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

// Lw; half of the budget without sinks if that is not larger than the window
// (docs/methods/semantics.md#small-budgets).
int WindowFrom(const EmsConfig& c, int64_t budget) {
  return static_cast<int>(WindowUnder(budget - c.sinks, c.window));
}

// Sinks and local tokens, each of which has a row of its own.
Protect ProtectedUnder(const EmsConfig& c, int64_t budget) {
  Protect regions = Regions{c.sinks, c.recent}.Under(budget);
  regions.recent = std::max<int64_t>(regions.recent, WindowFrom(c, budget));
  return regions;
}

// Heads per Step, whose tables are on the stack.
constexpr int kHeadsTogether = 16;

class EmsMethod final : public Method {
 public:
  explicit EmsMethod(const EmsConfig& c)
      : c_(c),
        traits_({.storage = {.positions = PositionModeFrom(c.positions), .shared_rows = true},
                 .decisions = {.evicts_in_decode = true, .shares_threads = true},
                 .budget = {.min = std::max<int64_t>(c.sinks + 2,
                                                     Regions{c.sinks, c.recent}.MinBudget())}}) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    // A chunk may complete one window and begin the next: take the rows of both.
    const kernels::TapSpec::Reduce reduce = score::TapReduceFrom(c_.reduce);
    return {.prefill = {.last_rows = 2 * c_.window - 1, .column_sums = true, .reduce = reduce},
            .decode = {.last_rows = 1, .reduce = reduce},
            .state = ems::kState};
  }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    return std::min(n, budget + ToMerge(budget));
  }
  int64_t TotalRows(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(n, budget) * n_layers;
  }
  int64_t LayerRows(int, int, int64_t budget, int64_t n) const override {
    return std::min(n, budget);
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    const bool prompt =
        call.n_new > 1 && call.n_slots(0) == call.n_new && ems::Members(call, 0) == 0;
    const bool fits = Fits(call);
    const int64_t n_local = ProtectedUnder(c_, call.budget).recent;
    if (call.phase == Phase::kDecode && call.pass == 0) ems::CountMembers(call, n_local);
    const bool done =
        call.pass == 0 && call.n_slots(0) - ems::Members(call, 0) <= n_local && RowsFit(call);
    const ems::Windows windows =
        call.pass == 0 ? ems::Advance(call, WindowFrom(c_, call.budget), prompt) : ems::Windows{};
    const auto observe = [&](int64_t i) {
      const int head = static_cast<int>(i);
      return call.pass == 0 ? ems::Observe(call, windows, head)
                            : ems::Totals(ems::Sums(call, head));
    };
    if (prompt || fits || done) call.backend.ForEach(call.n_kv_heads(), observe);
    if (done) return;
    if (fits) return KeepAll(call);
    WINNOW_DCHECK(traits_.storage.positions == PositionMode::kOriginal ||
                  !call.cache.keys_rotated(call.layer));
    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    if (prompt) {
      for (int head = 0; head < call.n_kv_heads(); ++head) {
        CompressPrompt(call, head, plan.heads[static_cast<size_t>(head)]);
      }
      return;
    }
    for (int head = 0; head < call.n_kv_heads(); head += kHeadsTogether) {
      const int n = std::min(kHeadsTogether, call.n_kv_heads() - head);
      plans.again |= Step(call, head, n, observe, plan);
    }
  }

 private:
  static PositionMode PositionModeFrom(EmsConfig::Positions positions) {
    switch (positions) {
      case EmsConfig::Positions::kReassigned:
        return PositionMode::kReassigned;
      case EmsConfig::Positions::kOriginal:
        return PositionMode::kText;
      case EmsConfig::Positions::kBaked:
        break;
    }
    return PositionMode::kOriginal;
  }

  static int64_t Classes(const Protect& regions, int64_t budget) {  // N_imp
    return budget - regions.sinks - regions.recent;
  }
  int64_t ToMerge(int64_t budget) const {  // N_tbm
    // 1e-9 makes up for rounding: in doubles (1.2 - 1) * 5 is a little less than 1.
    return CountFrom((c_.gamma - 1) * static_cast<double>(budget) + 1e-9);
  }

  // Whether every entry can have a row of its own.
  static bool Fits(const LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (call.n_slots(head) > call.budget) return false;
    }
    return true;
  }
  static bool RowsFit(const LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (call.cache.n_rows(call.layer, head) > call.budget) return false;
    }
    return true;
  }
  void KeepAll(const LayerCall& call) const {
    const int64_t n_local = ProtectedUnder(c_, call.budget).recent;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      ems::SetMembers(call, head, call.n_slots(head) - n_local);
    }
  }

  // --- both phases ---

  kernels::Similarity Compared(const LayerCall& call, int head) const {
    using Measure = kernels::Similarity::Measure;
    const Measure measure = c_.similarity == EmsConfig::Compare::kKey     ? Measure::kKeys
                            : c_.similarity == EmsConfig::Compare::kValue ? Measure::kValues
                                                                          : Measure::kProduct;
    kernels::Similarity compared;
    compared.keys = call.cache.keys(call.layer, head);
    compared.values = call.cache.values(call.layer, head);
    compared.measure = measure;
    compared.min_similarity = c_.tau;
    return compared;
  }

  // --- prefill ---

  void CompressPrompt(const LayerCall& call, int head, cache::HeadPlan& plan) const {
    const std::span<const Slot> order = call.order(head);
    const cache::SlotRows rows = call.cache.rows(call.layer, head);
    const Protect regions = ProtectedUnder(c_, call.budget);
    const auto n_old = static_cast<size_t>(call.n_slots(head) - regions.recent);
    const std::vector<double> local = ems::PromptLocal(call, WindowFrom(c_, call.budget), head);
    std::vector<double> scores = ems::PromptScores(call, head, c_.score, local);
    scores.resize(n_old);
    score::Smooth(score::Pool::kAverage, c_.kernel, call.scratch.numbers, scores);

    // The best ranks found classes, the next ones may join one.
    std::vector<int32_t> ranking(n_old - std::min(n_old, static_cast<size_t>(regions.sinks)));
    std::iota(ranking.begin(), ranking.end(), static_cast<int32_t>(regions.sinks));
    std::sort(ranking.begin(), ranking.end(), BestFirst{scores});
    const size_t n_founders =
        std::min(ranking.size(), static_cast<size_t>(Classes(regions, call.budget)));
    const size_t n_joining =
        std::min(ranking.size() - n_founders, static_cast<size_t>(ToMerge(call.budget)));
    for (int32_t& rank : ranking) rank = order[static_cast<size_t>(rank)];
    const std::span<const Slot> slots = ranking;
    const std::span<const Slot> joining = slots.subspan(n_founders, n_joining);
    std::vector<Slot> open;  // founders that others may join, oldest first
    const auto n_protected = std::min(n_founders, static_cast<size_t>(c_.n_protect));
    for (const Slot slot : slots.subspan(n_protected, n_founders - n_protected)) {
      open.push_back(slot);
    }
    // In a prompt slots are in the order of the text, so this sorts by age.
    std::sort(open.begin(), open.end());

    std::vector<int32_t> target(n_joining, kernels::Similarity::kNone);
    if (!open.empty()) FindClasses(call, head, joining, open, target);

    std::vector<std::vector<Slot>> joined(open.size());  // members besides the founder
    for (size_t i = 0; i < n_joining; ++i) {
      if (target[i] != kernels::Similarity::kNone) {
        joined[static_cast<size_t>(target[i])].push_back(joining[i]);
      } else {
        plan.evict.push_back(joining[i]);
      }
    }
    for (const Slot slot : slots.subspan(n_founders + n_joining)) plan.evict.push_back(slot);

    ems::SetMembers(call, head, static_cast<int64_t>(n_old - plan.evict.size()));

    std::vector<float> key(static_cast<size_t>(call.cache.config().shape.key_dim));
    const auto local_of = [&](Slot slot) { return local[static_cast<size_t>(slot)]; };
    for (size_t i = 0; i < open.size(); ++i) {
      std::vector<Slot>& members = joined[i];
      if (members.empty()) continue;
      members.push_back(open[i]);
      std::sort(members.begin(), members.end());
      double sum = 0;
      for (const Slot slot : members) sum += local_of(slot);
      const Slot row = rows[static_cast<size_t>(open[i])];
      plan.merges.push_back({.into = row, .n_sources = 0});
      for (const Slot slot : members) {
        const double weight =
            Fraction(local_of(slot), sum, 1 / static_cast<double>(members.size()));
        const double length = ems::KeyLength(call, head, slot, key);
        ems::AddSource(rows[static_cast<size_t>(slot)], length, weight, plan);
        ems::Share(call, head, slot, row, length, plan);
      }
    }
  }

  void FindClasses(const LayerCall& call, int head, std::span<const Slot> from,
                   std::span<const Slot> to, std::span<int32_t> target) const {
    const cache::SlotRows rows = call.cache.rows(call.layer, head);
    std::vector<int32_t> from_rows, to_rows;
    for (const Slot slot : from) from_rows.push_back(rows[static_cast<size_t>(slot)]);
    for (const Slot slot : to) to_rows.push_back(rows[static_cast<size_t>(slot)]);
    std::vector<float> similarity(from.size());
    kernels::Similarity compared = Compared(call, head);
    compared.from = from_rows;
    compared.to = to_rows;
    compared.best = similarity;
    compared.best_to = target;
    call.backend.MostSimilar({&compared, 1});
  }

  // --- decode ---

  // Promotes one local entry of every head and evicts or merges what this makes necessary. Returns
  // whether more is to be done (a smaller budget leaves too many classes or members even without
  // promotions).
  template <class Observe>
  bool Step(const LayerCall& call, int first_head, int n_heads, const Observe& observe,
            Plan& plan) const {
    const Protect regions = ProtectedUnder(c_, call.budget);
    std::array<ems::ClassTable, kHeadsTogether> tables;
    const ems::TableBuffers room(call, first_head, n_heads);
    for (int i = 0; i < n_heads; ++i) {
      tables[static_cast<size_t>(i)] = room.MakeTable(call, first_head + i, regions);
    }
    const int64_t max_classes = Classes(regions, call.budget);
    call.backend.ForEach(n_heads, [&](int64_t i) {
      const int head = first_head + static_cast<int>(i);
      ems::ClassTable& table = tables[static_cast<size_t>(i)];
      ems::Tabulate(call, head, ems::FactorsFrom(c_.score, observe(head)), table);
      if (static_cast<int64_t>(table.classes.size()) > max_classes) {
        ems::PopLeastImportant(table, c_.n_protect);
      }
    });
    // Without room for second members (gamma = 1 or a tiny budget) the least important class is
    // evicted.
    if (ToMerge(call.budget) > 0) {
      FindNearest(call, first_head, std::span(tables).first(static_cast<size_t>(n_heads)),
                  room.key());
    }

    std::array<bool, kHeadsTogether> again = {};
    call.backend.ForEach(n_heads, [&](int64_t i) {
      ems::ClassTable& table = tables[static_cast<size_t>(i)];
      const int head = first_head + static_cast<int>(i);
      cache::HeadPlan& head_plan = plan.heads[static_cast<size_t>(head)];
      if (table.nearest >= 0) {
        ems::MergeLowest(call, head, table, head_plan);
      } else if (table.lowest >= 0) {
        ems::EvictLowest(table, head_plan);
      }
      const int64_t cap = regions.sinks + max_classes + ToMerge(call.budget);
      const bool full = table.n_all > cap && head_plan.evict.empty();
      const int32_t weakest =
          (table.nearest >= 0 ? ems::WeakestAfterMerge(table) : table.weakest).rank;
      if (full && weakest >= 0) {
        head_plan.evict.push_back(table.order[static_cast<size_t>(weakest)]);
      }
      const int64_t n_left = table.n_all - static_cast<int64_t>(head_plan.evict.size());
      ems::SetMembers(call, head, n_left);
      again[static_cast<size_t>(i)] = call.n_slots(head) - table.n_old > regions.recent + 1 ||
                                      static_cast<int64_t>(table.classes.size()) > max_classes ||
                                      n_left > cap;
    });
    return std::ranges::find(again, true) != again.end();
  }

  // Finds the class that every head's least important class is most similar to.
  void FindNearest(const LayerCall& call, int first_head, std::span<ems::ClassTable> tables,
                   std::span<float> key) const {
    std::array<kernels::Similarity, kHeadsTogether> searches;
    size_t n = 0;
    for (size_t i = 0; i < tables.size(); ++i) {
      ems::ClassTable& table = tables[i];
      if (table.open.empty()) continue;
      kernels::Similarity& compared = searches[n++] =
          Compared(call, first_head + static_cast<int>(i));
      compared.from = std::span(&table.lowest, 1);
      compared.to = table.open;
      compared.ranks = table.oldest;
      compared.best = std::span(&table.similarity, 1);
      compared.best_to = std::span(&table.nearest, 1);
    }
    call.backend.MostSimilar(std::span(searches).first(n));
    for (size_t i = 0; i < tables.size(); ++i) {
      ems::ClassTable& table = tables[i];
      if (table.nearest < 0) continue;
      const int head = first_head + static_cast<int>(i);
      const auto length = [&](int32_t row) {
        const Slot slot = table.OldestSlot(row);
        return ems::IsKeyItself(call, head, slot) ? ems::KeyLength(call, head, slot, key) : 0;
      };
      table.lowest_length = length(table.lowest);
      table.nearest_length = length(table.joined());
    }
  }

  EmsConfig c_;
  Traits traits_;
};

Result<MethodPtr> Make(const EmsConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("ems", c.kernel));
  return MethodPtr(std::make_shared<EmsMethod>(c));
}

Promise Promises(const EmsConfig& c, int64_t budget) {
  const Protect regions = ProtectedUnder(c, budget);
  return {.exact = false,
          .sinks = regions.sinks,
          .recent = regions.recent,
          .merging = c.gamma == 1 ? Merging::kNone : Merging::kDirectionHull};
}

}  // namespace

MethodEntry Ems() {
  return Entry<EmsConfig, Make, Promises>(
      "ems", "the best entries start classes, the next best join them", "EMS, arXiv:2412.08521",
      {"positions=original", "positions=baked", "gamma=1", "gamma=1,window=2", "tau=0.2",
       "sinks=4,recent=0.5", "window=8,tau=-1", "window=8,tau=0.2,positions=original",
       "window=8,tau=0.2,positions=baked"});
}

}  // namespace winnow::compression::methods
