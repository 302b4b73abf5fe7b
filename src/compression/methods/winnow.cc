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
#include "compression/methods/winnow_choice.h"
#include "compression/methods/winnow_curves.h"
#include "compression/methods/winnow_generated.h"
#include "compression/methods/winnow_notes.h"
#include "compression/methods/winnow_reference.h"
#include "compression/methods/winnow_rest.h"
#include "compression/numbers.h"
#include "compression/parts.h"

namespace winnow::compression::methods {
namespace {

enum class Queries { kReplay, kWindow };
enum class Allocation { kCurves, kUniform, kTopK, kProfile };
enum class Generated { kStay, kLeave };

struct WinnowConfig {
  Queries queries = Queries::kReplay;
  Allocation allocation = Allocation::kCurves;
  double rest = 0.1;  // of the budget                                        [ours, as all]
  bool refit = true;
  int rows = 64;    // of a replay
  int window = 32;  // of the prompt, where there is no replay
  int chunk = 512;  // tokens replayed at a time
  Generated generated = Generated::kStay;
  GeneratedConfig leaving;
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
  v("generated", c.generated,
    "whether all generated tokens stay, or leave until each head has the size that the prompt left "
    "it, and its newest entries",
    Choices{"stay", "leave"});
  v("recent", c.leaving.recent, "those newest entries; as many leave at a time", Range{1, 1 << 20});
  v("decay", c.leaving.decay, "of what attention gave the others, each time", Range{0, 1});
}

constexpr int kBias = 0;  // half column, where there are rest rows

enum class Stage { kChoose, kMeasure, kEvict, kRefit, kDone };

// How far DecideAll is.
struct Work final : Notes {
  Stage stage = Stage::kChoose;
  size_t next_head = 0;  // [layer, kv_head], as all of these
  Shares shares;
  std::vector<HeadChoice> choices;
  std::vector<ErrorCurve> curves;
  std::vector<cache::HeadPlan> plans;

  std::unique_ptr<Memory> Copy() const override { return std::make_unique<Work>(*this); }
};

class WinnowMethod final : public Method {
 public:
  explicit WinnowMethod(const WinnowConfig& config)
      : c_(config),
        state_{.n_half_columns = c_.rest > 0 ? 1 : 0},
        generated_(c_.leaving, c_.rest > 0 ? kBias : -1, state_) {
    traits_.decisions.evicts_in_decode = leaves();
    traits_.budget.held = !leaves();
    traits_.decisions.prefill = DecisionPolicy::Prefill::kAtEnd;
    // Of the prompt's last rows a small budget takes fewer.
    traits_.decisions.learns_for_all_budgets = c_.queries == Queries::kReplay;
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
        .state = state_,
        .prompt_rows = {.which = Which::kLast, .n = c_.window, .queries = true, .norms = true}};
    needs.error_profiles = c_.allocation == Allocation::kProfile;
    if (leaves()) {
      needs.state += GeneratedEntries::state();
      needs.decode = GeneratedEntries::taps();
    }
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
  Method::Sizes DecodeSizes(int64_t budget, int64_t, int64_t n, int n_layers) const override {
    return generated_.Sizes(budget, n, n_layers);
  }
  Method::Sizes DecodeLayerSizes(int, int, int64_t budget, int64_t n) const override {
    return generated_.Sizes(budget, n, 1);
  }
  std::unique_ptr<Memory> MakeMemory() const override { return std::make_unique<Work>(); }

  // The last rows of the prompt: only in DecideAll is it known whether a replay counts instead.
  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode) {
      if (leaves()) generated_.Decide(call, plans);
      return;
    }
    if (leaves()) generated_.BeginPrompt(call, call.n_seen > call.budget);
    if (call.n_seen <= call.budget) return;
    const int64_t n = std::min(Window(call.budget), call.rows->size());
    size_t at = NotesIn(call).First(call);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      AddCallRows(call, head, call.rows->size() - n, 0, NotesIn(call).heads[at++].window);
    }
  }

  void ObserveReplay(const LayerCall& call) const override { TakeReplay(call, bias_column()); }

  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (call.n_seen <= call.budget) return;
    Work& work = static_cast<Work&>(*call.memory);
    switch (work.stage) {
      case Stage::kChoose:
        Begin(call, work);
        break;
      case Stage::kMeasure:
        MeasureSome(call, work);
        break;
      case Stage::kEvict:
        EvictSome(call, work, plans);
        break;
      case Stage::kRefit:
        RefitSome(call, work, plans);
        break;
      case Stage::kDone:
        break;
    }
    plans.again = work.stage != Stage::kDone;
  }

 private:
  bool leaves() const { return c_.generated == Generated::kLeave; }
  int bias_column() const { return traits_.storage.bias_column; }
  int64_t RestRows(int64_t budget) const {
    if (c_.rest <= 0) return 0;
    return std::max<int64_t>(1, CountFrom(std::round(c_.rest * static_cast<double>(budget))));
  }
  // Last tokens of a prompt that count, and stay, where there is no replay.
  int64_t Window(int64_t budget) const {
    return std::min(WindowUnder(budget, c_.window), budget - RestRows(budget));
  }

  // The pieces of DecideAll, in their order.
  void Begin(const LayerCall& call, Work& work) const;
  void MeasureSome(const LayerCall& call, Work& work) const;
  void EvictSome(const LayerCall& call, Work& work, PlanList& plans) const;
  void RefitSome(const LayerCall& call, Work& work, PlanList& plans) const;
  void EndChoice(const LayerCall& call, Work& work, const std::vector<int64_t>& sizes) const;
  void Evict(const kernels::Backend& backend, const LoadedHead& head, const std::vector<bool>& keep,
             const Shares& shares, HeadNotes& notes, cache::HeadPlan& plan) const;
  std::vector<HeadChoice> ChooseAll(const LayerCall& call, const Shares& shares,
                                    std::span<const std::vector<float>> scores) const;
  bool Measures(const LayerCall& call) const {
    return c_.allocation == Allocation::kCurves ||
           (c_.allocation == Allocation::kProfile && call.profiles == nullptr);
  }
  // The curve of one head.
  ErrorCurve Measure(const LayerCall& call, const LoadedHead& head, const HeadChoice& choice) const;
  static bool Tells(const LayerCall& call) {
    return call.on_error_curve != nullptr && call.replayed;
  }
  static void TellCurves(const LayerCall& call, EntryOrder order,
                         std::span<const ErrorCurve> curves);
  std::vector<int64_t> Sizes(const LayerCall& call, const Shares& shares,
                             std::span<const HeadChoice> choices) const;
  WinnowConfig c_;
  cache::StateShape state_;  // besides that of generated_
  GeneratedEntries generated_;
  Traits traits_;
};

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
    return FillTopK(choices, notes.scores, shares.floor, shares.n_new);
  }
  const ErrorProfile& profile = call.replayed ? call.profiles->replay : call.profiles->window;
  std::vector<ErrorCurve> curves;
  for (size_t i = 0; i < choices.size(); ++i) {
    curves.push_back(profile.CurveFor(static_cast<int>(i / n_heads), static_cast<int>(i % n_heads),
                                      std::ssize(choices[i].order)));
  }
  return FillCurves(curves, shares.floor, shares.n_new);
}

ErrorCurve WinnowMethod::Measure(const LayerCall& call, const LoadedHead& head,
                                 const HeadChoice& choice) const {
  std::vector<int32_t> order;
  for (size_t rank = 0; rank < choice.keep.size(); ++rank) {
    if (choice.keep[rank]) order.push_back(static_cast<int32_t>(rank));
  }
  const int64_t n_fixed = std::ssize(order);
  order.insert(order.end(), choice.order.begin(), choice.order.end());
  const ReferenceRows& rows = CompleteRows(call.backend, head, NotesIn(call).heads[head.index]);
  return MakeErrorCurve(call.backend, rows, head.entries.InOrder(order), n_fixed,
                        Grams(call.backend, rows, head.projections));
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

std::vector<HeadChoice> WinnowMethod::ChooseAll(const LayerCall& call, const Shares& shares,
                                                std::span<const std::vector<float>> scores) const {
  std::vector<HeadChoice> choices;
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      choices.push_back(
          ChooseEntries(at.n_slots(head), call.n_new, shares, scores[choices.size()]));
    }
  }
  return choices;
}

void WinnowMethod::Begin(const LayerCall& call, Work& work) const {
  work.shares = ShareBudget(call, RestRows(call.budget), Window(call.budget));
  if (!call.replayed) {
    // More were noted where the budget was not known yet.
    for (HeadNotes& head : work.heads) head.window.KeepLast(Window(call.budget));
    work.scores = WindowScores(call, bias_column());
    for (HeadNotes& head : work.heads) head.rows = std::move(head.window);
  }
  work.choices = ChooseAll(call, work.shares, work.scores);
  if (!Measures(call)) return EndChoice(call, work, Sizes(call, work.shares, work.choices));
  work.curves.resize(work.choices.size());
  work.stage = Stage::kMeasure;
}

void WinnowMethod::MeasureSome(const LayerCall& call, Work& work) const {
  work.next_head = ForSomeHeads(
      call, bias_column(), Projections::kYes, work.next_head, [&](const LoadedHead& head) {
        work.curves[head.index] = Measure(call, head, work.choices[head.index]);
      });
  if (work.next_head < work.choices.size()) return;
  if (Tells(call)) TellCurves(call, EntryOrder::kReplay, work.curves);
  EndChoice(call, work, FillCurves(work.curves, work.shares.floor, work.shares.n_new));
}

void WinnowMethod::EndChoice(const LayerCall& call, Work& work,
                             const std::vector<int64_t>& sizes) const {
  if (Tells(call)) {
    const auto choices = ChooseAll(call, work.shares, WindowScores(call, bias_column()));
    std::vector<ErrorCurve> curves(choices.size());
    ForAllHeads(call, bias_column(), Projections::kYes, [&](const LoadedHead& head) {
      curves[head.index] = Measure(call, head, choices[head.index]);
    });
    TellCurves(call, EntryOrder::kWindow, curves);
  }
  if (leaves()) generated_.NoteScores(call, work.scores);
  for (size_t i = 0; i < work.choices.size(); ++i) {
    HeadChoice& choice = work.choices[i];
    for (int64_t j = 0; j < std::min(sizes[i], std::ssize(choice.order)); ++j) {
      choice.keep[static_cast<size_t>(choice.order[static_cast<size_t>(j)])] = true;
    }
  }
  work.plans.resize(work.choices.size());
  work.next_head = 0;
  work.stage = Stage::kEvict;
}

void WinnowMethod::EvictSome(const LayerCall& call, Work& work, PlanList& plans) const {
  work.next_head = ForSomeHeads(
      call, bias_column(), Projections::kNo, work.next_head, [&](const LoadedHead& head) {
        Evict(call.backend, head, work.choices[head.index].keep, work.shares,
              work.heads[head.index], work.plans[head.index]);
      });
  if (work.next_head < work.choices.size()) return;
  size_t i = 0;
  for (int layer = 0; layer < call.n_layers; ++layer) {
    Plan& plan = plans.Add(layer, call.n_kv_heads());
    for (cache::HeadPlan& to : plan.heads) to = std::exchange(work.plans[i++], {});
    if (leaves()) generated_.NoteRestRows(call, plan);
  }
  work.next_head = 0;
  work.stage = c_.refit ? Stage::kRefit : Stage::kDone;
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
  notes.targets = MakeTargets(backend, CompleteRows(backend, head, notes), head.entries);
  if (evicted.empty() || shares.n_rest == 0) return;
  AddRestRows(notes.rows, head.entries, notes.targets, evicted, shares.n_rest, head.slots, plan);
}

void WinnowMethod::RefitSome(const LayerCall& call, Work& work, PlanList& plans) const {
  work.next_head = ForSomeHeads(
      call, bias_column(), Projections::kNo, work.next_head, [&](const LoadedHead& head) {
        const HeadNotes& of_head = work.heads[head.index];
        if (head.entries.n == of_head.n_before) return;
        cache::HeadPlan& plan = work.plans[head.index];
        plan.new_values = RefitValues(call.backend, of_head.rows, head.entries, of_head.targets,
                                      of_head.n_before, call.cache.config().value_type);
        if (!plan.new_values.empty()) plan.rewrite = head.slots;
      });
  if (work.next_head < work.plans.size()) return;
  work.stage = Stage::kDone;
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  for (size_t first = 0; first < work.plans.size(); first += n_heads) {
    const auto of_layer = std::span(work.plans).subspan(first, n_heads);
    if (std::ranges::all_of(of_layer, [](const auto& head) { return head.rewrite.empty(); }))
      continue;
    Plan& plan = plans.Add(static_cast<int>(first / n_heads), call.n_kv_heads());
    std::ranges::move(of_layer, plan.heads.begin());
  }
}

Result<MethodPtr> Make(const WinnowConfig& c) {
  return MethodPtr(std::make_shared<WinnowMethod>(c));
}

Promise Promises(const WinnowConfig& c, int64_t) {
  return {.merges = c.rest > 0 || c.refit, .prompt_by_steps = false};
}

}  // namespace

MethodEntry Winnow() {
  return Entry<WinnowConfig, Make, Promises>(
      "winnow", "all heads share one budget by what leaving entries out does to a replay",
      "ours: docs/methods/winnow.md",
      {"queries=window", "rest=0,refit=false", "allocation=top-k,rest=0,refit=false",
       "allocation=uniform,chunk=64", "generated=leave,recent=4",
       "generated=leave,recent=3,rest=0"});
}

}  // namespace winnow::compression::methods
