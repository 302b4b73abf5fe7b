// EMS (evict-then-merge, arXiv:2412.08521): the best entries found classes; the next best join the
// most similar class or go. A class is one stored row, the weighted mean of its members' directions
// and values; each member keeps its place in the text and its key's length, so it still takes part
// in attention on its own.
// No composition of parts: entries fall into three, and share rows (cache::HeadPlan::shares).
// Decided here, the paper being silent (methods.md 1.5): who leaves a full table, how important a
// class is, and that entries without a class leave attention altogether.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "compression/methods/methods.h"
#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::methods {
namespace {

struct EmsConfig {
  // Keys are compared and merged before RoPE and stand at their rank, or where they stood in the
  // text ("without position"); or after RoPE ("with position").
  enum class Positions { kReassigned, kOriginal, kBaked };
  enum class Compare { kKey, kValue, kBoth };
  int window = 32;                               // Lw, local tokens  [paper; 16 for needle tests]
  int kernel = 7;                                // smoothing of scores in prefill, odd  [paper]
  double gamma = 4;                              // entries per stored row, at most  [paper]
  double tau = 0.6;                              // least similarity of what is merged  [paper]
  int n_protect = 0;                             // best classes that nothing is merged into  [ours]
  Compare similarity = Compare::kBoth;           // [paper; the others: ablation]
  Positions positions = Positions::kReassigned;  // [ours: the paper evaluates both]
};

template <class Visitor>
void Visit(EmsConfig& c, Visitor& v) {
  v("window", c.window, "newest tokens, each with a row of its own", Range{1, 1 << 16});
  v("kernel", c.kernel, "smoothing width of the scores of a prompt, odd", Range{1, 1 << 20});
  v("gamma", c.gamma, "entries per stored row, at most", Range{1, 1000});
  v("tau", c.tau, "least similarity of what is merged; above 1: nothing is", Range{-1, 2});
  v("n_protect", c.n_protect, "best classes that nothing is merged into", Range{0, 1 << 20});
  v("similarity", c.similarity, "what is compared; both: the product of the two cosines",
    Choices{"key", "value", "both"});
  v("positions", c.positions,
    "of the keys: their place in the cache, in the text, or in the text before they are merged",
    Choices{"reassigned", "original", "baked"});
}

// Columns.
constexpr int kGlobal = 0;   // s_Glo: attention received so far
constexpr int kPast = 1;     // attention received in the last whole window of queries
constexpr int kCurrent = 2;  // attention received in the window that has begun
constexpr int kNorm = 3;     // length of the key as it was; 0: a local token, no member of a class
// Layer number: queries in the window that has begun.
constexpr int kCounter = 0;

// The length of a zero key: not the mark of a local token, and 0 as a factor.
constexpr double kNoLength = std::numeric_limits<double>::min();

class EmsMethod final : public Method {
 public:
  explicit EmsMethod(const EmsConfig& c)
      : c_(c),
        traits_({.positions = PositionsOf(c.positions),
                 .evicts_in_decode = true,
                 .shared_rows = true,
                 .min_budget = c.window + 1}) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    // A chunk may complete a window and begin the next: the rows of both.
    return {.prefill = {.last_rows = 2 * c_.window - 1, .column_sums = true},
            .decode = {.last_rows = 1},
            .state = {.n_columns = 4, .n_layer_numbers = 1}};
  }
  int64_t MostSlots(int64_t budget, int64_t n) const override {
    return std::min(n, budget + ToMerge(budget));
  }
  int64_t TotalRows(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(n, budget) * n_layers;
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    const bool prompt = call.n_new > 1 && call.n_slots(0) == call.n_new && Members(call, 0) == 0;
    if (call.pass == 0) Observe(call, prompt);
    if (call.pass == 0 && call.n_slots(0) - Members(call, 0) <= c_.window) return;
    if (Fits(call)) {
      FoundAll(call);
      return;
    }
    WINNOW_DCHECK(traits_.positions == PositionMode::kOriginal ||
                  !call.cache.keys_rotated(call.layer));
    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      cache::HeadPlan& head_plan = plan.heads[static_cast<size_t>(head)];
      if (prompt) {
        CompressPrompt(call, head, head_plan);
      } else {
        plans.again |= Step(call, head, head_plan);
      }
    }
  }

 private:
  static PositionMode PositionsOf(EmsConfig::Positions positions) {
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

  int64_t Classes(int64_t budget) const { return budget - c_.window; }  // N_imp
  int64_t ToMerge(int64_t budget) const {                               // N_tbm
    return static_cast<int64_t>((c_.gamma - 1) * static_cast<double>(budget));
  }

  // Entries that are members of classes: all but the local ones, which are the newest.
  static int64_t Members(const LayerCall& call, int head) {
    const std::span<const Slot> order = call.order(head);
    const std::span<const double> norm = call.column(head, kNorm);
    auto n = static_cast<int64_t>(order.size());
    while (n > 0 && norm[static_cast<size_t>(order[static_cast<size_t>(n - 1)])] == 0) --n;
    return n;
  }

  // Whether every entry can have a class of its own.
  static bool Fits(const LayerCall& call) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (call.n_slots(head) > call.budget) return false;
    }
    return true;
  }
  void FoundAll(const LayerCall& call) const {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const auto n_members = static_cast<size_t>(Members(call, head));
      const auto n_local = static_cast<size_t>(c_.window);
      const std::span<const Slot> order = call.order(head);
      Found(call, head, order.subspan(n_members, order.size() - n_members - n_local));
    }
  }

  // --- scores (1.5.1, and steps 1 and 2 of 1.5.3) ---

  void Observe(const LayerCall& call, bool prompt) const {
    const int window = c_.window;
    double& counter = call.layer_number(kCounter);
    const auto begun = static_cast<int64_t>(counter);
    const int64_t n_windows = (begun + call.n_new) / window;  // completed by this call
    const int64_t n_current = prompt ? 0 : (begun + call.n_new) % window;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      AddGlobal(call, head);
      const std::span<double> past = call.column(head, kPast);
      const std::span<double> current = call.column(head, kCurrent);
      if (prompt) {
        AddRows(call, head, std::max<int64_t>(0, call.n_new - window), call.n_new, past);
        continue;
      }
      if (n_windows > 0) {
        const int64_t end = call.n_new - n_current;
        if (n_windows > 1) std::ranges::fill(current, 0.0);
        AddRows(call, head, std::max<int64_t>(0, end - window), end, current);
        std::ranges::copy(current, past.begin());
        std::ranges::fill(current, 0.0);
        AddRows(call, head, end, call.n_new, current);
      } else {
        AddRows(call, head, 0, call.n_new, current);
      }
    }
    counter = static_cast<double>(n_current);
  }

  static void AddGlobal(const LayerCall& call, int head) {
    const std::span<double> global = call.column(head, kGlobal);
    if (call.taps.column_sums.empty()) {
      AddRows(call, head, 0, 1, global);
      return;
    }
    const std::vector<double>& sums = call.taps.column_sums[static_cast<size_t>(head)];
    for (size_t slot = 0; slot < global.size(); ++slot) global[slot] += sums[slot];
  }

  // Adds the weights of the call's queries first..last-1.
  static void AddRows(const LayerCall& call, int head, int64_t first, int64_t last,
                      std::span<double> sums) {
    const int64_t n_not_tapped = call.n_new - call.taps.n_last_rows;
    for (int64_t query = first; query < last; ++query) {
      const std::span<const float> row =
          call.last_row(head, static_cast<int>(query - n_not_tapped));
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += row[slot];
    }
  }

  // s_Loc of the entries of a head.
  struct LocalScores {
    std::span<const double> past, current;
    LocalScores(const LayerCall& call, int head)
        : past(call.column(head, kPast)), current(call.column(head, kCurrent)) {}
    double operator[](Slot slot) const {
      return past[static_cast<size_t>(slot)] + current[static_cast<size_t>(slot)];
    }
  };

  // s_GL: local attention, or global attention brought to the same sum, whichever is more.
  struct Scores {
    std::span<const double> global;
    LocalScores local;
    double f = 0;  // what global attention is multiplied by
    Scores(const LayerCall& call, int head)
        : global(call.column(head, kGlobal)), local(call, head) {
      double local_sum = 0;
      double global_sum = 0;
      for (size_t slot = 0; slot < global.size(); ++slot) {
        local_sum += local[static_cast<Slot>(slot)];
        global_sum += global[slot];
      }
      if (global_sum > 0) f = local_sum / global_sum;
    }
    double operator[](Slot slot) const {
      return std::max(f * global[static_cast<size_t>(slot)], local[slot]);
    }
  };

  // --- what both phases need ---

  kernels::Similarity Compared(const LayerCall& call, int head) const {
    using Measure = kernels::Similarity::Measure;
    const Measure measure = c_.similarity == EmsConfig::Compare::kKey     ? Measure::kKeys
                            : c_.similarity == EmsConfig::Compare::kValue ? Measure::kValues
                                                                          : Measure::kProduct;
    kernels::Similarity compared;
    compared.keys = call.cache.keys(call.layer, head);
    compared.values = call.cache.values(call.layer, head);
    compared.measure = measure;
    return compared;
  }

  // Makes an entry the member of a class: notes the length of its key.
  static void Found(const LayerCall& call, int head, std::span<const Slot> slots) {
    const kernels::HeadRows keys = call.cache.keys(call.layer, head);
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    const std::span<double> norm = call.column(head, kNorm);
    std::vector<float>& key = call.scratch.floats;
    key.resize(static_cast<size_t>(keys.dim));
    for (const Slot slot : slots) {
      call.backend.ReadRows(keys, std::span(&rows[static_cast<size_t>(slot)], 1), key);
      double squares = 0;
      for (const float x : key) squares += static_cast<double>(x) * x;
      norm[static_cast<size_t>(slot)] = std::max(kNoLength, std::sqrt(squares));
    }
  }

  // What turns the row of an entry into the direction of its class. A row that was never merged is
  // the key itself, with factor 1; a merged one is a direction, and the factors are the lengths.
  static double ToDirection(const LayerCall& call, int head, Slot slot) {
    const double factor = call.cache.factors(call.layer, head)[static_cast<size_t>(slot)];
    const double norm = call.column(head, kNorm)[static_cast<size_t>(slot)];
    if (factor == 0) return 1;
    return norm == kNoLength ? 0 : factor / norm;
  }

  static void Share(const LayerCall& call, int head, Slot slot, Slot row, cache::HeadPlan& plan) {
    const auto at = static_cast<size_t>(slot);
    const auto factor = static_cast<float>(call.column(head, kNorm)[at]);
    if (call.cache.rows(call.layer, head)[at] == row &&
        call.cache.factors(call.layer, head)[at] == factor) {
      return;
    }
    plan.shares.push_back({.slot = slot, .row = row, .factor = factor});
  }

  // Adds a source of the merge that was begun last.
  static void AddSource(const LayerCall& call, int head, Slot slot, double weight,
                        cache::HeadPlan& plan) {
    ++plan.merges.back().n_sources;
    plan.sources.push_back(
        {.row = call.cache.rows(call.layer, head)[static_cast<size_t>(slot)],
         .key_weight = static_cast<float>(weight * ToDirection(call, head, slot)),
         .value_weight = static_cast<float>(weight)});
  }

  // --- 1.5.2 ---

  void CompressPrompt(const LayerCall& call, int head, cache::HeadPlan& plan) const {
    const std::span<const Slot> order = call.order(head);
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    const auto n_old = static_cast<size_t>(call.n_slots(head) - c_.window);
    const Scores score_of(call, head);
    std::vector<double> scores(n_old);
    for (size_t rank = 0; rank < n_old; ++rank) scores[rank] = score_of[order[rank]];
    score::Smooth(score::Pool::kAverage, c_.kernel, call.scratch.numbers, scores);

    // The best ranks found classes, the next may join one.
    std::vector<int32_t> ranking(n_old);
    std::iota(ranking.begin(), ranking.end(), 0);
    std::sort(ranking.begin(), ranking.end(), [&](int32_t a, int32_t b) {
      const double x = scores[static_cast<size_t>(a)];
      const double y = scores[static_cast<size_t>(b)];
      return x != y ? x > y : a > b;
    });
    const size_t n_founders = std::min(n_old, static_cast<size_t>(Classes(call.budget)));
    const size_t n_joining =
        std::min(n_old - n_founders, static_cast<size_t>(ToMerge(call.budget)));
    for (int32_t& rank : ranking) rank = order[static_cast<size_t>(rank)];
    const std::span<const Slot> slots = ranking;
    const std::span<const Slot> joining = slots.subspan(n_founders, n_joining);
    Found(call, head, slots.first(n_founders + n_joining));

    std::vector<Slot> open;  // founders that others may join, oldest first
    const auto n_protected = std::min(n_founders, static_cast<size_t>(c_.n_protect));
    for (const Slot slot : slots.subspan(n_protected, n_founders - n_protected)) {
      open.push_back(slot);
    }
    // In a prompt slots are still in the order of the text.
    std::sort(open.begin(), open.end());

    std::vector<float> similarity(n_joining, -std::numeric_limits<float>::infinity());
    std::vector<int32_t> target(n_joining, 0);
    if (!open.empty()) FindClasses(call, head, joining, open, similarity, target);

    std::vector<std::vector<Slot>> joined(open.size());  // members besides the founder
    for (size_t i = 0; i < n_joining; ++i) {
      if (similarity[i] >= c_.tau) {
        joined[static_cast<size_t>(target[i])].push_back(joining[i]);
      } else {
        plan.evict.push_back(joining[i]);
      }
    }
    for (const Slot slot : slots.subspan(n_founders + n_joining)) plan.evict.push_back(slot);

    const LocalScores local(call, head);
    for (size_t i = 0; i < open.size(); ++i) {
      std::vector<Slot>& members = joined[i];
      if (members.empty()) continue;
      members.push_back(open[i]);
      std::sort(members.begin(), members.end());
      double sum = 0;
      for (const Slot slot : members) sum += local[slot];
      const Slot row = rows[static_cast<size_t>(open[i])];
      plan.merges.push_back({.into = row, .n_sources = 0});
      for (const Slot slot : members) {
        const double weight = sum > 0 ? local[slot] / sum : 1 / static_cast<double>(members.size());
        AddSource(call, head, slot, weight, plan);
        Share(call, head, slot, row, plan);
      }
    }
  }

  void FindClasses(const LayerCall& call, int head, std::span<const Slot> from,
                   std::span<const Slot> to, std::span<float> similarity,
                   std::span<int32_t> target) const {
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    std::vector<int32_t> from_rows, to_rows;
    for (const Slot slot : from) from_rows.push_back(rows[static_cast<size_t>(slot)]);
    for (const Slot slot : to) to_rows.push_back(rows[static_cast<size_t>(slot)]);
    kernels::Similarity compared = Compared(call, head);
    compared.from = from_rows;
    compared.to = to_rows;
    compared.best = similarity;
    compared.best_to = target;
    call.backend.MostSimilar({&compared, 1});
  }

  // --- 1.5.3 ---

  // What is known about the classes of a head, by row. In the scratch: steps allocate nothing.
  struct ClassTable {
    std::span<double> scores;      // [rank] s_GL
    std::span<double> importance;  // [row] the best score of a member
    std::span<double> weight;      // [row] sum of the members' local attention
    std::span<int32_t> n_members;  // [row] 0: not the row of a class
    std::span<int32_t> member;     // [row] the slot of one
    std::span<int32_t> classes;    // rows of classes, that with the oldest member first
  };

  // One promotion, and what it makes necessary; true: there is more to do. (A budget that became
  // smaller leaves too many classes or members without another promotion.)
  bool Step(const LayerCall& call, int head, cache::HeadPlan& plan) const {
    const std::span<const Slot> order = call.order(head);
    const int64_t n_old = Members(call, head);
    const int64_t n_local = call.n_slots(head) - n_old;
    int64_t n_members = n_old;
    if (n_local > c_.window) {
      Found(call, head, order.subspan(static_cast<size_t>(n_old), 1));
      ++n_members;
    }
    ClassTable table = Tabulate(call, head, static_cast<size_t>(n_members));
    auto n_classes = static_cast<int64_t>(table.classes.size());
    int64_t n_left = n_members;
    if (n_classes > Classes(call.budget)) {
      n_left -= MergeLeast(call, head, static_cast<size_t>(n_members), table, plan);
      --n_classes;
    }
    const int64_t cap = Classes(call.budget) + ToMerge(call.budget);
    if (n_left == n_members && n_members > cap) {
      n_left -= DropMember(call, head, static_cast<size_t>(n_old), table, plan);
    }
    return n_local > c_.window + 1 || n_classes > Classes(call.budget) || n_left > cap;
  }

  ClassTable Tabulate(const LayerCall& call, int head, size_t n_members) const {
    const std::span<const Slot> order = call.order(head);
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    const auto n_rows = static_cast<size_t>(call.cache.n_rows(call.layer, head));
    std::vector<double>& numbers = call.scratch.numbers;
    std::vector<int32_t>& indices = call.scratch.indices;
    numbers.assign(n_members + 2 * n_rows, 0.0);
    // The last two are MergeLeast's.
    indices.assign(3 * n_rows + 2, 0);
    const std::span<double> all_numbers(numbers);
    const std::span<int32_t> all_indices(indices);
    ClassTable table = {.scores = all_numbers.first(n_members),
                        .importance = all_numbers.subspan(n_members, n_rows),
                        .weight = all_numbers.subspan(n_members + n_rows, n_rows),
                        .n_members = all_indices.first(n_rows),
                        .member = all_indices.subspan(n_rows, n_rows),
                        .classes = {}};
    const std::span<int32_t> classes = all_indices.subspan(2 * n_rows, n_rows);
    size_t n_classes = 0;
    const Scores scores(call, head);
    for (size_t rank = 0; rank < n_members; ++rank) {
      const Slot slot = order[rank];
      table.scores[rank] = scores[slot];
      const auto row = static_cast<size_t>(rows[static_cast<size_t>(slot)]);
      if (table.n_members[row]++ == 0) classes[n_classes++] = static_cast<int32_t>(row);
      table.member[row] = slot;
      table.importance[row] = std::max(table.importance[row], table.scores[rank]);
      table.weight[row] += scores.local[slot];
    }
    table.classes = classes.first(n_classes);
    return table;
  }

  // The least important class merges into the most similar other one, or all its members go: so
  // many.
  int64_t MergeLeast(const LayerCall& call, int head, size_t n_members, ClassTable& table,
                     cache::HeadPlan& plan) const {
    const auto importance = [&](int32_t row) { return table.importance[static_cast<size_t>(row)]; };
    const auto least = std::ranges::min_element(table.classes, {}, importance);
    const int32_t from = *least;
    std::copy(least + 1, table.classes.end(), least);
    std::span<int32_t> open = table.classes.first(table.classes.size() - 1);
    if (c_.n_protect > 0) open = WithoutBest(open, importance);

    const auto similarity = std::span(call.scratch.floats).first(1);
    const std::span<int32_t> own = std::span(call.scratch.indices).last(2);
    own[0] = from;
    int32_t into = -1;
    if (!open.empty()) {
      kernels::Similarity compared = Compared(call, head);
      compared.from = own.first(1);
      compared.to = open;
      compared.best = similarity;
      compared.best_to = own.last(1);
      call.backend.MostSimilar({&compared, 1});
      if (similarity[0] >= c_.tau) into = open[static_cast<size_t>(own[1])];
    }

    const std::span<const Slot> order = call.order(head);
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    for (const Slot slot : order.first(n_members)) {
      const Slot row = rows[static_cast<size_t>(slot)];
      if (into < 0 && row == from) plan.evict.push_back(slot);
      if (into >= 0 && (row == from || row == into)) Share(call, head, slot, into, plan);
    }
    if (into < 0) return table.n_members[static_cast<size_t>(from)];

    const auto x = static_cast<size_t>(from);
    const auto y = static_cast<size_t>(into);
    const double sum = table.weight[x] + table.weight[y];
    plan.merges.push_back({.into = into, .n_sources = 0});
    AddSource(call, head, table.member[x], sum > 0 ? table.weight[x] / sum : 0.5, plan);
    AddSource(call, head, table.member[y], sum > 0 ? table.weight[y] / sum : 0.5, plan);
    table.n_members[y] += table.n_members[x];
    table.n_members[x] = table.n_members[y];  // for those of its members that look it up
    return 0;
  }

  // Without the n_protect most important classes; the order of the others stays.
  template <class Importance>
  std::span<int32_t> WithoutBest(std::span<int32_t> classes, Importance&& importance) const {
    for (int i = 0; i < c_.n_protect && !classes.empty(); ++i) {
      const auto best = std::ranges::max_element(classes, {}, importance);
      std::copy(best + 1, classes.end(), best);
      classes = classes.first(classes.size() - 1);
    }
    return classes;
  }

  // Of the first n_old ranks the one with the least score goes, if its class has other members: so
  // many.
  static int64_t DropMember(const LayerCall& call, int head, size_t n_old, const ClassTable& table,
                            cache::HeadPlan& plan) {
    const std::span<const Slot> order = call.order(head);
    const std::span<const Slot> rows = call.cache.rows(call.layer, head);
    Slot victim = -1;
    double least = std::numeric_limits<double>::infinity();
    for (size_t rank = 0; rank < n_old; ++rank) {
      const auto row = static_cast<size_t>(rows[static_cast<size_t>(order[rank])]);
      if (table.n_members[row] < 2 || table.scores[rank] >= least) continue;
      least = table.scores[rank];
      victim = order[rank];
    }
    if (victim < 0) return 0;
    plan.evict.push_back(victim);
    return 1;
  }

  EmsConfig c_;
  Traits traits_;
};

Result<MethodPtr> Make(const EmsConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("ems", c.kernel));
  return MethodPtr(std::make_shared<EmsMethod>(c));
}

}  // namespace

MethodEntry Ems() {
  return Entry<EmsConfig, Make>("ems", "the best entries found classes, the next best join them",
                                "EMS, arXiv:2412.08521");
}

}  // namespace winnow::compression::methods
