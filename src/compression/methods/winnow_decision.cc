#include "compression/methods/winnow_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "compression/methods/winnow_rest.h"
#include "compression/numbers.h"
#include "compression/parts.h"

namespace winnow::compression::methods {
namespace {

// Reports error curves to a caller that builds a profile; only those of replayed prompts.
bool Tells(const LayerCall& call) { return call.on_error_curve != nullptr && call.replayed; }
void ReportCurves(const LayerCall& call, EntryOrder order, std::span<const ErrorCurve> curves) {
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  for (size_t i = 0; i < curves.size(); ++i) {
    const auto layer = static_cast<int>(i / n_heads), head = static_cast<int>(i % n_heads);
    if (!curves[i].sizes.empty()) (*call.on_error_curve)(order, layer, head, curves[i]);
  }
}

// Marks the first n entries of the head's order as kept.
void Keep(HeadChoice& choice, int64_t n) {
  for (const int32_t rank :
       std::span(choice.order).first(static_cast<size_t>(std::min(n, std::ssize(choice.order))))) {
    choice.keep[static_cast<size_t>(rank)] = true;
  }
}

}  // namespace

int64_t Decision::RestRows(int64_t budget) const {
  if (c_.rest <= 0) return 0;
  return std::max<int64_t>(1, CountFrom(std::round(c_.rest * static_cast<double>(budget))));
}

int64_t Decision::Window(int64_t budget) const {
  return std::min(WindowUnder(budget, c_.window), budget - RestRows(budget));
}

void Decision::BeginLayer(const LayerCall& call) {
  const int64_t n = std::min(Window(call.budget), call.rows->size());
  size_t at = First(call);
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    AddCallRows(call, head, call.rows->size() - n, 0, heads[at++].window);
  }
  if (!c_.each_layer) return;
  if (call.layer == 0) {
    shares_ = ShareBudget(call, RestRows(call.budget), Window(call.budget));
    sizes_ = KnownSizes(call);
  }
  range_ = HeadRange::OfLayer(call);
  Enter(Stage::kChoose);
}

void Decision::DecideSome(const LayerCall& call, PlanList& plans) {
  switch (stage_) {
    case Stage::kChoose:
      c_.each_layer ? DecideLayer(call, plans) : Choose(call);
      break;
    case Stage::kMeasure:
      MeasureSome(call);
      break;
    case Stage::kEvict:
      EvictSome(call, plans);
      break;
    case Stage::kRefit:
      RefitSome(call, plans);
      break;
    case Stage::kDone:
      break;
  }
  plans.again = stage_ != Stage::kDone;
}

std::vector<int64_t> Decision::KnownSizes(const LayerCall& call) const {
  if (c_.allocation == Allocation::kUniform || call.profiles == nullptr) {
    return FillUniform(HeadRange::All(call).end, shares_);
  }
  return FillProfile(call.replayed ? call.profiles->replay : call.profiles->window,
                     call.n_new - shares_.n_recent, shares_);
}

std::vector<HeadChoice> Decision::ChooseAll(
    const LayerCall& call, std::span<const std::vector<float>> scores_by_head) const {
  std::vector<HeadChoice> choices;
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      choices.push_back(
          ChooseEntries(at.n_slots(head), call.n_new, shares_, scores_by_head[choices.size()]));
    }
  }
  return choices;
}

// Decides whole heads in one piece, because their sizes are known.
void Decision::DecideLayer(const LayerCall& call, PlanList& plans) {
  choices_.resize(range_.size());
  plans_.assign(range_.size(), {});
  ForAllHeads(call, c_.bias_column, Projections::kNo, range_, [&](const LoadedHead& head) {
    TakeWindow(call, head);
    choices_[InRange(head)] =
        ChooseEntries(head.entries.n, call.n_new, shares_, scores[head.index]);
    Keep(choices_[InRange(head)], sizes_[head.index]);
    Evict(call.backend, head, plans_[InRange(head)]);
  });
  NoteScores(call);
  AddPlans(call, plans);
}

void Decision::TakeWindow(const LayerCall& call, const LoadedHead& head) {
  HeadNotes& notes = heads[head.index];
  // More rows were noted if the budget was not known yet.
  notes.window.KeepLast(Window(call.budget));
  scores[head.index] = methods::TakeWindow(call.backend, head, notes);
}

void Decision::Choose(const LayerCall& call) {
  range_ = HeadRange::All(call);
  shares_ = ShareBudget(call, RestRows(call.budget), Window(call.budget));
  if (!call.replayed) {
    ForAllHeads(call, c_.bias_column, Projections::kNo, range_,
                [&](const LoadedHead& head) { TakeWindow(call, head); });
  }
  choices_ = ChooseAll(call, scores);
  if (Measures(call)) {
    curves_.resize(range_.size());
    Enter(Stage::kMeasure);
  } else {
    EndChoice(call, c_.allocation == Allocation::kTopK
                        ? FillTopK(choices_, scores, shares_.floor, shares_.n_new)
                        : KnownSizes(call));
  }
}

ErrorCurve Decision::Measure(const LayerCall& call, const LoadedHead& head,
                             const HeadChoice& choice) {
  std::vector<int32_t> order;
  for (size_t rank = 0; rank < choice.keep.size(); ++rank) {
    if (choice.keep[rank]) order.push_back(static_cast<int32_t>(rank));
  }
  const int64_t n_fixed = std::ssize(order);
  order.insert(order.end(), choice.order.begin(), choice.order.end());
  const ReferenceRows& rows = CompleteRows(call.backend, head, heads[head.index]);
  return MakeErrorCurve(call.backend, rows, head.entries.InOrder(order), n_fixed,
                        Grams(call.backend, rows, head.projections));
}

void Decision::MeasureSome(const LayerCall& call) {
  left_.first =
      ForSomeHeads(call, c_.bias_column, Projections::kYes, left_, [&](const LoadedHead& head) {
        const size_t at = InRange(head);
        curves_[at] = Measure(call, head, choices_[at]);
      });
  if (left_.any()) return;
  if (Tells(call)) ReportCurves(call, EntryOrder::kReplay, curves_);
  EndChoice(call, FillCurves(curves_, shares_.floor, shares_.n_new));
}

void Decision::ReportWindowCurves(const LayerCall& call) {
  std::vector<std::vector<float>> window_scores(heads.size());
  ForAllHeads(call, c_.bias_column, Projections::kNo, range_, [&](const LoadedHead& head) {
    HeadNotes notes;
    notes.window = std::move(heads[head.index].window);
    window_scores[head.index] = methods::TakeWindow(call.backend, head, notes);
  });
  const auto choices = ChooseAll(call, window_scores);
  std::vector<ErrorCurve> curves(choices.size());
  ForAllHeads(call, c_.bias_column, Projections::kYes, range_, [&](const LoadedHead& head) {
    curves[head.index] = Measure(call, head, choices[head.index]);
  });
  ReportCurves(call, EntryOrder::kWindow, curves);
}

void Decision::NoteScores(const LayerCall& call) const {
  if (c_.generated == nullptr) return;
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  LayerCall at = call;
  for (size_t i = range_.first; i < range_.end; i += n_heads) {
    at.layer = static_cast<int>(i / n_heads);
    c_.generated->NoteScores(at, std::span(scores).subspan(i, n_heads));
  }
}

void Decision::EndChoice(const LayerCall& call, std::span<const int64_t> sizes) {
  if (Tells(call)) ReportWindowCurves(call);
  NoteScores(call);
  for (size_t i = 0; i < choices_.size(); ++i) {
    Keep(choices_[i], sizes[i]);
    // Of all entries of all layers: not needed any more, and plans take as much.
    choices_[i].order = {};
    scores[range_.first + i] = {};
  }
  plans_.assign(choices_.size(), {});
  Enter(Stage::kEvict);
}

void Decision::EvictSome(const LayerCall& call, PlanList& plans) {
  left_.first = ForSomeHeads(
      call, c_.bias_column, Projections::kNo, left_,
      [&](const LoadedHead& head) { Evict(call.backend, head, plans_[InRange(head)]); });
  if (!left_.any()) AddPlans(call, plans);
}

void Decision::AddPlans(const LayerCall& call, PlanList& plans) {
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  for (size_t i = 0; i < plans_.size(); i += n_heads) {
    Plan& plan = plans.Add(static_cast<int>((range_.first + i) / n_heads), call.n_kv_heads());
    for (size_t head = 0; head < n_heads; ++head) {
      plan.heads[head] = std::exchange(plans_[i + head], {});
    }
    if (c_.generated != nullptr) c_.generated->NoteRestRows(call, plan);
  }
  if (c_.refit) {
    Enter(Stage::kRefit);
  } else {
    End();
  }
}

// Frees what was noted about a finished layer.
void Decision::End() {
  Enter(Stage::kDone);
  for (size_t i = range_.first; c_.each_layer && i < range_.end; ++i) {
    heads[i] = {};
    scores[i] = {};
  }
}

void Decision::Evict(const kernels::Backend& backend, const LoadedHead& head,
                     cache::HeadPlan& plan) {
  const std::vector<bool>& keep = choices_[InRange(head)].keep;
  HeadNotes& notes = heads[head.index];
  std::vector<int32_t> evicted;
  for (size_t rank = 0; rank < keep.size(); ++rank) {
    if (!keep[rank]) evicted.push_back(static_cast<int32_t>(rank));
  }
  notes.n_before = head.entries.n;
  // If no more entries would be evicted than rest rows may be made of them, all stay as they are.
  if (std::ssize(evicted) <= shares_.n_rest) evicted.clear();
  if (shares_.n_rest == 0) {
    for (const int32_t rank : evicted) plan.evict.push_back(head.slots[static_cast<size_t>(rank)]);
  }
  if (shares_.n_rest == 0 && !c_.refit) return;
  if (notes.targets.masses.empty()) {
    notes.targets = MakeTargets(backend, CompleteRows(backend, head, notes), head.entries);
  }
  if (evicted.empty() || shares_.n_rest == 0) return;
  AddRestRows(notes.rows, head.entries, notes.targets, evicted, shares_.n_rest, head.slots, plan);
}

void Decision::RefitSome(const LayerCall& call, PlanList& plans) {
  left_.first =
      ForSomeHeads(call, c_.bias_column, Projections::kNo, left_, [&](const LoadedHead& head) {
        const HeadNotes& notes = heads[head.index];
        if (head.entries.n == notes.n_before) return;
        cache::HeadPlan& plan = plans_[InRange(head)];
        plan.new_values = RefitValues(call.backend, notes.rows, head.entries, notes.targets,
                                      notes.n_before, call.cache.config().value_type);
        if (!plan.new_values.empty()) plan.rewrite = head.slots;
      });
  if (left_.any()) return;
  End();
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  for (size_t i = 0; i < plans_.size(); i += n_heads) {
    const auto of_layer = std::span(plans_).subspan(i, n_heads);
    if (std::ranges::all_of(of_layer, [](const auto& head) { return head.rewrite.empty(); }))
      continue;
    Plan& plan = plans.Add(static_cast<int>((range_.first + i) / n_heads), call.n_kv_heads());
    std::ranges::move(of_layer, plan.heads.begin());
  }
}

}  // namespace winnow::compression::methods
