// winnow: our own. After the prompt the engine reads it once more (replay); what the replay attends
// to says which entries of a head come first, and what leaving the others out does to the head's
// output says how many it needs. All layers and heads share one budget by these error curves; the
// evicted leave a few weighted rows behind, and the values that stay are fitted to the whole.
// A method of its own rather than parts: it decides about all layers together, by rows of queries.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compression/methods/methods.h"
#include "compression/methods/winnow_curves.h"
#include "compression/methods/winnow_notes.h"
#include "compression/methods/winnow_reference.h"
#include "compression/methods/winnow_rest.h"
#include "compression/numbers.h"
#include "compression/parts.h"

namespace winnow::compression::methods {
namespace {

enum class Queries { kReplay, kWindow };
enum class Allocation { kCurves, kUniform, kTopK, kProfile };

struct WinnowConfig {
  Queries queries = Queries::kReplay;
  Allocation allocation = Allocation::kCurves;
  double rest = 0.1;  // of the budget                                        [ours, as all]
  bool refit = true;
  int rows = 128;    // of a replay
  int window = 32;   // of the prompt, where there is no replay
  int chunk = 2048;  // tokens replayed at a time
};

template <class Visitor>
void Visit(WinnowConfig& c, Visitor& v) {
  v("queries", c.queries,
    "whose attention counts: that of a replay of the prompt, or of the prompt's last tokens",
    Choices{"replay", "window"});
  v("allocation", c.allocation,
    "how layers and heads share the budget: by their error curves, equally, by one ranking, or by "
    "the model's profile (winnow calibrate)",
    Choices{"curves", "uniform", "top-k", "profile"});
  v("rest", c.rest, "share of the budget for weighted rows of what was evicted", Range{0, 0.3});
  v("refit", c.refit,
    "fit the values that stay to the outputs of the full cache: on three of four reference rows, "
    "checked on the fourth; fewer than four change nothing");
  v("rows", c.rows, "rows of the replay that errors are measured on", Range{4, 4096});
  v("window", c.window, "last prompt tokens that count, and stay, where there is no replay",
    Range{1, 1 << 20});
  v("chunk", c.chunk, "tokens replayed at a time", Range{64, 1 << 20});
}

constexpr int kBias = 0;  // half column, where there are rest rows

class WinnowMethod final : public Method {
 public:
  explicit WinnowMethod(const WinnowConfig& config) : c_(config) {
    traits_.decisions.prefill = DecisionPolicy::Prefill::kAtEnd;
    traits_.tells_error_curves =
        c_.queries == Queries::kReplay && c_.allocation == Allocation::kCurves;
    if (c_.rest > 0) {
      traits_.storage.bias_column = kBias;
      traits_.budget.min = 2;
    }
  }

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    using Which = attention::RowSpec::Which;
    Needs needs = {
        .state = {.n_half_columns = c_.rest > 0 ? 1 : 0},
        .prompt_rows = {.which = Which::kLast, .n = c_.window, .queries = true, .norms = true}};
    needs.error_profiles = c_.allocation == Allocation::kProfile;
    if (c_.queries == Queries::kReplay) {
      // The words of KVzip (arXiv:2505.23416).
      needs.replay = {
          .text = "\n\nRepeat the previous context exactly.\n",
          .next_text = "\n\nRepeat the part of the previous context exactly, starting with",
          .chunk = c_.chunk,
          .taps = {.column_max = true, .reduce = kernels::TapSpec::Reduce::kMax},
          .rows = {.which = Which::kEven, .n = c_.rows, .queries = true, .norms = true}};
    }
    return needs;
  }
  // One head may get what others leave.
  int64_t MaxSlots(int64_t, int64_t n) const override { return n; }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(budget, n) * n_layers;
  }
  std::unique_ptr<Memory> MakeMemory() const override { return std::make_unique<Notes>(); }

  // The last rows of the prompt: only in DecideAll is it known whether a replay counts instead.
  void Decide(const LayerCall& call, PlanList&) const override {
    if (call.phase == Phase::kDecode || call.n_seen <= call.budget) return;
    const int64_t n = std::min(Window(call.budget), call.rows->size());
    size_t at = NotesIn(call).First(call);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      AddCallRows(call, head, call.rows->size() - n, 0, NotesIn(call).heads[at++].window);
    }
  }

  void ObserveReplay(const LayerCall& call) const override { TakeReplay(call, bias_column()); }

  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (call.n_seen <= call.budget) return;
    if (call.pass == 0) {
      Shrink(call, plans);
      plans.again = c_.refit && !plans.plans().empty();
    } else {
      Refit(call, plans);
    }
  }

 private:
  int bias_column() const { return traits_.storage.bias_column; }
  int64_t RestRows(int64_t budget) const {
    if (c_.rest <= 0) return 0;
    return std::max<int64_t>(1, CountFrom(std::round(c_.rest * static_cast<double>(budget))));
  }
  // Last tokens of a prompt that count, and stay, where there is no replay.
  int64_t Window(int64_t budget) const {
    return std::min(WindowUnder(budget, c_.window), budget - RestRows(budget));
  }

  // One KV head before anything goes: which ranks stay in any case, and the order of the others.
  struct HeadChoice {
    int64_t n = 0;
    std::vector<bool> keep;      // [rank]: stays whatever the head's size
    std::vector<int32_t> order;  // ranks of the call's other entries, from the first to keep
  };
  struct Shares {
    int64_t n_old = 0;     // entries from before the call that all heads keep together
    int64_t n_new = 0;     // the same of the call's entries, what stays in any case not counted
    int64_t n_held = 0;    // entries from before the call that there are
    int64_t n_rest = 0;    // rest rows of a head
    int64_t n_recent = 0;  // of the call, that stay in any case
    int64_t floor = 0;     // of the call's entries in a head, at least
  };
  Shares Share(const LayerCall& call) const;
  HeadChoice Choose(const LayerCall& call, int head, const Shares& shares,
                    std::span<const float> scores) const;
  void Shrink(const LayerCall& call, PlanList& plans) const;
  void Evict(const kernels::Backend& backend, const LoadedHead& head, const std::vector<bool>& keep,
             const Shares& shares, HeadNotes& notes, cache::HeadPlan& plan) const;
  std::vector<HeadChoice> ChooseAll(const LayerCall& call, const Shares& shares,
                                    std::span<const std::vector<float>> scores) const;
  std::vector<ErrorCurve> MeasureCurves(const LayerCall& call,
                                        std::span<const HeadChoice> choices) const;
  static bool Tells(const LayerCall& call) {
    return call.on_error_curve != nullptr && call.replayed;
  }
  static void TellCurves(const LayerCall& call, EntryOrder order,
                         std::span<const ErrorCurve> curves);
  std::vector<int64_t> Sizes(const LayerCall& call, const Shares& shares,
                             std::span<const HeadChoice> choices) const;
  void Refit(const LayerCall& call, PlanList& plans) const;

  WinnowConfig c_;
  Traits traits_;
};

// What earlier calls left keeps the share of the budget that its part of the text has.
WinnowMethod::Shares WinnowMethod::Share(const LayerCall& call) const {
  const int64_t n_heads = int64_t{call.n_layers} * call.n_kv_heads();
  Shares shares;
  shares.n_rest = RestRows(call.budget);
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      shares.n_held += at.n_slots(head) - call.n_new;
    }
  }
  const int64_t total = (call.budget - shares.n_rest) * n_heads;
  if (!call.replayed) shares.n_recent = std::min(Window(call.budget), call.n_new);
  shares.n_recent =
      std::max(shares.n_recent, std::min(call.n_protected, call.budget - shares.n_rest));
  const auto of_new =
      static_cast<int64_t>(static_cast<double>(total) * static_cast<double>(call.n_new) /
                           static_cast<double>(call.n_seen));
  const int64_t for_new = std::max(of_new, shares.n_recent * n_heads);
  shares.n_old = std::min(total - for_new, shares.n_held);
  shares.n_new = total - shares.n_old - shares.n_recent * n_heads;
  shares.floor = std::min(std::max<int64_t>(1, call.budget / 10), shares.n_new / n_heads);
  return shares;
}

WinnowMethod::HeadChoice WinnowMethod::Choose(const LayerCall& call, int head, const Shares& shares,
                                              std::span<const float> scores) const {
  HeadChoice choice = {.n = call.n_slots(head), .keep = {}, .order = {}};
  const int64_t n_old = choice.n - call.n_new;
  choice.keep.resize(static_cast<size_t>(choice.n));
  const std::vector<double> wide(scores.begin(), scores.end());
  const auto best_of = [&](int64_t first, int64_t end) {
    std::vector<int32_t> ranks;
    for (int64_t rank = first; rank < end; ++rank) ranks.push_back(static_cast<int32_t>(rank));
    std::ranges::sort(ranks, BestFirst{wide});
    return ranks;
  };
  const std::vector<int32_t> old = best_of(0, n_old);
  const int64_t n_keep =
      shares.n_held == 0 ? 0 : n_old * shares.n_old / shares.n_held;  // rounded down: within it
  for (int64_t i = 0; i < n_keep; ++i) {
    choice.keep[static_cast<size_t>(old[static_cast<size_t>(i)])] = true;
  }
  const int64_t end = choice.n - shares.n_recent;
  for (int64_t rank = end; rank < choice.n; ++rank) choice.keep[static_cast<size_t>(rank)] = true;
  choice.order = best_of(n_old, end);
  return choice;
}

std::vector<int64_t> WinnowMethod::Sizes(const LayerCall& call, const Shares& shares,
                                         std::span<const HeadChoice> choices) const {
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  const Notes& notes = NotesIn(call);
  std::vector<int64_t> sizes(choices.size());
  if (c_.allocation == Allocation::kUniform) {
    const int64_t each = shares.n_new / std::ssize(choices);
    std::ranges::fill(sizes, each);
    return sizes;
  }
  if (c_.allocation == Allocation::kTopK) {
    std::vector<Candidate> candidates;
    int64_t left = shares.n_new;
    for (size_t i = 0; i < choices.size(); ++i) {
      sizes[i] = std::min(shares.floor, std::ssize(choices[i].order));
      left -= sizes[i];
      for (size_t j = static_cast<size_t>(sizes[i]); j < choices[i].order.size(); ++j) {
        const int32_t rank = choices[i].order[j];
        candidates.push_back({.score = notes.scores[i][static_cast<size_t>(rank)],
                              .position = rank,
                              .kv_head = static_cast<int>(i)});
      }
    }
    std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
      if (ScoreLess(b.score, a.score)) return true;
      return !ScoreLess(a.score, b.score) && a.position > b.position;
    });
    candidates.resize(std::min(candidates.size(), static_cast<size_t>(left)));
    for (const Candidate& candidate : candidates) ++sizes[static_cast<size_t>(candidate.kv_head)];
    return sizes;
  }
  if (c_.allocation != Allocation::kProfile || call.profiles == nullptr) {
    const std::vector<ErrorCurve> curves = MeasureCurves(call, choices);
    if (Tells(call)) TellCurves(call, EntryOrder::kReplay, curves);
    return FillCurves(curves, shares.floor, shares.n_new);
  }
  const ErrorProfile& profile = call.replayed ? call.profiles->replay : call.profiles->window;
  std::vector<ErrorCurve> curves;
  for (size_t i = 0; i < choices.size(); ++i) {
    curves.push_back(profile.CurveFor(static_cast<int>(i / n_heads), static_cast<int>(i % n_heads),
                                      std::ssize(choices[i].order)));
  }
  return FillCurves(curves, shares.floor, shares.n_new);
}

std::vector<ErrorCurve> WinnowMethod::MeasureCurves(const LayerCall& call,
                                                    std::span<const HeadChoice> choices) const {
  Notes& notes = NotesIn(call);
  std::vector<ErrorCurve> curves(choices.size());
  ForHeads(call, bias_column(), Projections::kYes, [&](const LoadedHead& head) {
    const HeadChoice& choice = choices[head.index];
    std::vector<int32_t> order;
    for (size_t rank = 0; rank < choice.keep.size(); ++rank) {
      if (choice.keep[rank]) order.push_back(static_cast<int32_t>(rank));
    }
    const int64_t n_fixed = std::ssize(order);
    order.insert(order.end(), choice.order.begin(), choice.order.end());
    const ReferenceRows& rows = notes.heads[head.index].rows;
    curves[head.index] = MakeErrorCurve(call.backend, rows, head.entries.InOrder(order), n_fixed,
                                        Grams(call.backend, rows, head.projections));
  });
  return curves;
}

// To whoever makes a profile: what a replay says of the choices.
void WinnowMethod::TellCurves(const LayerCall& call, EntryOrder order,
                              std::span<const ErrorCurve> curves) {
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto layer = static_cast<int>(i / n_heads), head = static_cast<int>(i % n_heads);
    if (!curves[i].sizes.empty()) (*call.on_error_curve)(order, layer, head, curves[i]);
  }
}

std::vector<WinnowMethod::HeadChoice> WinnowMethod::ChooseAll(
    const LayerCall& call, const Shares& shares, std::span<const std::vector<float>> scores) const {
  std::vector<HeadChoice> choices;
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      choices.push_back(Choose(at, head, shares, scores[choices.size()]));
    }
  }
  return choices;
}

void WinnowMethod::Shrink(const LayerCall& call, PlanList& plans) const {
  Notes& notes = NotesIn(call);
  const Shares shares = Share(call);
  if (!call.replayed) {
    notes.scores = WindowScores(call, bias_column());
    for (HeadNotes& head : notes.heads) head.rows = std::move(head.window);
  }
  std::vector<HeadChoice> choices = ChooseAll(call, shares, notes.scores);
  const std::vector<int64_t> sizes = Sizes(call, shares, choices);
  if (Tells(call)) {
    TellCurves(call, EntryOrder::kWindow,
               MeasureCurves(call, ChooseAll(call, shares, WindowScores(call, bias_column()))));
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    HeadChoice& choice = choices[i];
    for (int64_t j = 0; j < std::min(sizes[i], std::ssize(choice.order)); ++j) {
      choice.keep[static_cast<size_t>(choice.order[static_cast<size_t>(j)])] = true;
    }
  }
  std::vector<cache::HeadPlan> found(choices.size());
  ForHeads(call, bias_column(), Projections::kNo, [&](const LoadedHead& head) {
    Evict(call.backend, head, choices[head.index].keep, shares, notes.heads[head.index],
          found[head.index]);
  });
  size_t i = 0;
  for (int layer = 0; layer < call.n_layers; ++layer) {
    for (cache::HeadPlan& to : plans.Add(layer, call.n_kv_heads()).heads) {
      to = std::move(found[i++]);
    }
  }
}

void WinnowMethod::Evict(const kernels::Backend& backend, const LoadedHead& head,
                         const std::vector<bool>& keep, const Shares& shares, HeadNotes& notes,
                         cache::HeadPlan& plan) const {
  std::vector<int32_t> evicted;
  for (size_t rank = 0; rank < keep.size(); ++rank) {
    if (!keep[rank]) evicted.push_back(static_cast<int32_t>(rank));
  }
  notes.n_before = head.entries.n;
  // Where as many rows may stay as entries would go, they stay as they are.
  if (std::ssize(evicted) <= shares.n_rest) evicted.clear();
  if (shares.n_rest == 0) {
    for (const int32_t rank : evicted) plan.evict.push_back(head.slots[static_cast<size_t>(rank)]);
  }
  if (shares.n_rest == 0 && !c_.refit) return;
  notes.targets = MakeTargets(backend, notes.rows, head.entries);
  if (evicted.empty() || shares.n_rest == 0) return;
  AddRestRows(notes.rows, head.entries, notes.targets, evicted, shares.n_rest, head.slots, plan);
}

void WinnowMethod::Refit(const LayerCall& call, PlanList& plans) const {
  Notes& notes = NotesIn(call);
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  std::vector<cache::HeadPlan> found(static_cast<size_t>(call.n_layers) * n_heads);
  ForHeads(call, bias_column(), Projections::kNo, [&](const LoadedHead& head) {
    const HeadNotes& of_head = notes.heads[head.index];
    if (head.entries.n == of_head.n_before) return;
    cache::HeadPlan& plan = found[head.index];
    plan.new_values = RefitValues(call.backend, of_head.rows, head.entries, of_head.targets,
                                  of_head.n_before, call.cache.config().value_type);
    if (!plan.new_values.empty()) plan.rewrite = head.slots;
  });
  for (size_t first = 0; first < found.size(); first += n_heads) {
    const auto of_layer = std::span(found).subspan(first, n_heads);
    if (std::ranges::all_of(of_layer, [](const auto& head) { return head.rewrite.empty(); }))
      continue;
    Plan& plan = plans.Add(static_cast<int>(first / n_heads), call.n_kv_heads());
    std::ranges::move(of_layer, plan.heads.begin());
  }
}

Result<MethodPtr> Make(const WinnowConfig& c) {
  return MethodPtr(std::make_shared<WinnowMethod>(c));
}

Promise Promises(const WinnowConfig& c, int64_t) { return {.merges = c.rest > 0 || c.refit}; }

}  // namespace

MethodEntry Winnow() {
  return Entry<WinnowConfig, Make, Promises>(
      "winnow", "all heads share one budget by what leaving entries out does to a replay",
      "ours: docs/methods/winnow.md",
      {"queries=window", "rest=0,refit=false", "allocation=top-k,rest=0,refit=false",
       "allocation=uniform,chunk=64"});
}

}  // namespace winnow::compression::methods
