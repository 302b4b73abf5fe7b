#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compression/method.h"
#include "compression/methods/winnow_choice.h"
#include "compression/methods/winnow_curves.h"
#include "compression/methods/winnow_generated.h"
#include "compression/methods/winnow_notes.h"

// What winnow (winnow.cc) decides about a prompt: how many entries each head keeps, and which; what
// becomes of the others.
namespace winnow::compression::methods {

enum class Allocation { kCurves, kUniform, kTopK, kProfile };

struct DecisionConfig {
  Allocation allocation = Allocation::kCurves;
  double rest = 0;  // share of the budget for rest rows
  bool refit = false;
  int window = 0;           // of the prompt, where there is no replay
  bool each_layer = false;  // a layer is decided about as soon as the prompt is through it; else
                            // all at the end
  int bias_column = -1;     // of rest rows; -1: there are none
  const GeneratedEntries* generated = nullptr;  // null: generated tokens stay
};

// Of one prompt call longer than its budget, from its first layer to its end.
class Decision final : public Notes {
 public:
  // The config outlives the decision, and its copies.
  explicit Decision(const DecisionConfig& config) : c_(config) {}
  std::unique_ptr<Memory> Copy() const override { return std::make_unique<Decision>(*this); }

  // The prompt is through a layer. Only when it is through all is it known whether a replay counts
  // instead of its last rows.
  void BeginLayer(const LayerCall& call);
  // The next piece of the decision about this layer, or all; plans.again: there is another one.
  void DecideSome(const LayerCall& call, PlanList& plans);

 private:
  enum class Stage { kChoose, kMeasure, kEvict, kRefit, kDone };

  void Enter(Stage stage) {
    stage_ = stage;
    left_ = range_;
  }
  void DecideLayer(const LayerCall& call, PlanList& plans);
  void End();
  // The pieces of what is decided at the end, in their order; the last one of a layer as well.
  void Choose(const LayerCall& call);
  void MeasureSome(const LayerCall& call);
  void EvictSome(const LayerCall& call, PlanList& plans);
  void RefitSome(const LayerCall& call, PlanList& plans);
  // What the prompt's last rows attend to becomes what counts.
  void TakeWindow(const LayerCall& call, const LoadedHead& head);
  // sizes [layer, kv_head].
  void EndChoice(const LayerCall& call, std::span<const int64_t> sizes);
  void TellWindowCurves(const LayerCall& call);
  void NoteScores(const LayerCall& call) const;
  void AddPlans(const LayerCall& call, PlanList& plans);
  void Evict(const kernels::Backend& backend, const LoadedHead& head, cache::HeadPlan& plan);

  int64_t RestRows(int64_t budget) const;
  // Last tokens of a prompt that count, and stay, where there is no replay.
  int64_t Window(int64_t budget) const;
  // Whether the curves of this prompt are needed.
  bool Measures(const LayerCall& call) const {
    return c_.allocation == Allocation::kCurves ||
           (c_.allocation == Allocation::kProfile && call.profiles == nullptr);
  }
  // Of all heads, where no entry has to be known for them.
  std::vector<int64_t> SizesBeforehand(const LayerCall& call) const;
  // Of all heads.  scores_by_head [layer, kv_head][rank]
  std::vector<HeadChoice> ChooseAll(const LayerCall& call,
                                    std::span<const std::vector<float>> scores_by_head) const;
  // The curve of one head.
  ErrorCurve Measure(const LayerCall& call, const LoadedHead& head, const HeadChoice& choice);
  size_t InRange(const LoadedHead& head) const { return head.index - range_.first; }

  const DecisionConfig& c_;
  Shares shares_;
  std::vector<int64_t> sizes_;  // [layer, kv_head], with each_layer
  Stage stage_ = Stage::kChoose;
  HeadRange range_;  // the heads that are decided about together: all, or a layer's
  HeadRange left_;   // those of them that the stage has not come to
  // [head of the range]
  std::vector<HeadChoice> choices_;
  std::vector<ErrorCurve> curves_;
  std::vector<cache::HeadPlan> plans_;
};

}  // namespace winnow::compression::methods
