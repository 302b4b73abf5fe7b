#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_choice.h"
#include "compression/methods/winnow_curves.h"
#include "compression/methods/winnow_generated.h"
#include "compression/methods/winnow_notes.h"

// winnow's (winnow.cc) decision about a prompt: how many entries each head keeps, which ones, and
// what replaces the others.
namespace winnow::compression::methods {

enum class Allocation { kCurves, kUniform, kTopK, kProfile };

struct DecisionConfig {
  Allocation allocation = Allocation::kCurves;
  double rest = 0;  // share of the budget for rest rows
  bool refit = false;
  int window = 0;           // of the prompt, if there is no replay
  bool each_layer = false;  // decide a layer once its prompt attention is done, not all at the end
  int bias_column = -1;     // of rest rows; -1: none
  const GeneratedEntries* generated = nullptr;  // null: generated tokens stay
};

// The decision about one prompt call that exceeds its budget, from the call's first layer to its
// end.
class Decision final : public Notes {
 public:
  // `config` must outlive the decision and its copies.
  explicit Decision(const DecisionConfig& config) : c_(config) {}
  std::unique_ptr<Memory> Copy() const override { return std::make_unique<Decision>(*this); }

  // To be called when the prompt's attention in a layer is done. Notes the prompt's last rows,
  // because only after the last layer is it known whether a replay replaces them.
  void BeginLayer(const LayerCall& call);
  // Runs the next piece of the decision about this layer (each_layer) or all; plans.again: more
  // follow.
  void DecideSome(const LayerCall& call, PlanList& plans);

 private:
  enum class Stage { kChoose, kMeasure, kEvict, kRefit, kDone };

  void Enter(Stage stage) {
    stage_ = stage;
    left_ = range_;
  }
  void DecideLayer(const LayerCall& call, PlanList& plans);
  void End();
  // The pieces of a decision about all layers, in order. RefitSome also ends that about one layer.
  void Choose(const LayerCall& call);
  void MeasureSome(const LayerCall& call);
  void EvictSome(const LayerCall& call, PlanList& plans);
  void RefitSome(const LayerCall& call, PlanList& plans);
  // Scores a head's entries by the prompt's last rows, which replace the replay's.
  void TakeWindow(const LayerCall& call, const LoadedHead& head);
  // sizes [layer, kv_head].
  void EndChoice(const LayerCall& call, std::span<const int64_t> sizes);
  void ReportWindowCurves(const LayerCall& call);
  void NoteScores(const LayerCall& call) const;
  void AddPlans(const LayerCall& call, PlanList& plans);
  void Evict(const kernels::Backend& backend, const LoadedHead& head, cache::HeadPlan& plan);

  int64_t RestRows(int64_t budget) const;
  // The number of last prompt tokens that count and always stay if there is no replay.
  int64_t Window(int64_t budget) const;
  // Whether this prompt's own error curves are needed.
  bool Measures(const LayerCall& call) const {
    return c_.allocation == Allocation::kCurves ||
           (c_.allocation == Allocation::kProfile && call.profiles == nullptr);
  }
  // Sizes of all heads that do not depend on the entries.
  std::vector<int64_t> KnownSizes(const LayerCall& call) const;
  // Choices for all heads.  scores_by_head [layer, kv_head][rank]
  std::vector<HeadChoice> ChooseAll(const LayerCall& call,
                                    std::span<const std::vector<float>> scores_by_head) const;
  // The error curve of one head.
  ErrorCurve Measure(const LayerCall& call, const LoadedHead& head, const HeadChoice& choice);
  size_t InRange(const LoadedHead& head) const { return head.index - range_.first; }

  const DecisionConfig& c_;
  Shares shares_;
  std::vector<int64_t> sizes_;  // [layer, kv_head], with each_layer
  Stage stage_ = Stage::kChoose;
  HeadRange range_;  // the heads that are decided together: all, or a layer's
  HeadRange left_;   // those that the stage has not done yet
  // [head of the range]
  std::vector<HeadChoice> choices_;
  std::vector<ErrorCurve> curves_;
  std::vector<cache::HeadPlan> plans_;
};

}  // namespace winnow::compression::methods
