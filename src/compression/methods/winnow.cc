// winnow, our own method. After the prompt the engine reads it once more (the replay). The replay's
// attention ranks the entries of a head; the error that leaving entries out causes in the head's
// output says how many it needs. By these error curves all layers and heads share one budget.
// Evicted entries leave a few weighted rows behind, and the kept values are fitted to the full
// cache's outputs.
// Implements Method rather than combining parts: it reads rows of queries and, where sizes are not
// known beforehand, decides about all layers together.
#include <algorithm>
#include <memory>

#include "compression/methods/methods.h"
#include "compression/methods/repeat_prompt.h"
#include "compression/methods/winnow_decision.h"
#include "compression/methods/winnow_generated.h"

namespace winnow::compression::methods {
namespace {

enum class Queries { kReplay, kWindow };
enum class Generated { kStay, kLeave };

struct WinnowConfig {
  Queries queries = Queries::kReplay;
  Allocation allocation = Allocation::kCurves;
  double rest = 0.1;  // share of the budget  [ours, like all defaults here]
  bool refit = true;
  int rows = 64;    // of a replay
  int window = 32;  // of the prompt, if there is no replay
  int chunk = 512;  // tokens replayed at a time
  Generated generated = Generated::kStay;
  GeneratedConfig leaving;
};

template <class Visitor>
void Visit(WinnowConfig& c, Visitor& v) {
  v("queries", c.queries,
    "queries whose attention counts: those of a replay of the prompt, or of the prompt's last "
    "tokens",
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
  v("window", c.window, "last prompt tokens that count, and stay, if there is no replay",
    Range{1, 1 << 20});
  v("chunk", c.chunk, "tokens replayed at a time", Range{64, 1 << 20});
  v("generated", c.generated,
    "keep all generated tokens, or evict down to the size that the prompt left each head, plus its "
    "newest entries",
    Choices{"stay", "leave"});
  v("recent", c.leaving.recent, "number of those newest entries; as many are evicted at a time",
    Range{1, 1 << 20});
  v("decay", c.leaving.decay, "factor on the scores after each eviction", Range{0, 1});
}

constexpr int kBias = 0;  // half column, where there are rest rows

class WinnowMethod final : public Method {
 public:
  explicit WinnowMethod(const WinnowConfig& config)
      : c_(config),
        state_{.n_half_columns = c_.rest > 0 ? 1 : 0},
        generated_(c_.leaving, c_.rest > 0 ? kBias : -1, state_),
        decision_{.allocation = c_.allocation,
                  .rest = c_.rest,
                  .refit = c_.refit,
                  .window = c_.window,
                  // Without a replay, and with sizes known beforehand, a layer need not wait for
                  // the others.
                  .each_layer =
                      c_.queries == Queries::kWindow && (c_.allocation == Allocation::kUniform ||
                                                         c_.allocation == Allocation::kProfile),
                  .bias_column = c_.rest > 0 ? kBias : -1,
                  .generated = leaves() ? &generated_ : nullptr} {
    traits_.decisions.evicts_in_decode = leaves();
    traits_.budget.held = !leaves();
    traits_.decisions.prefill = decision_.each_layer ? DecisionPolicy::Prefill::kEachLayer
                                                     : DecisionPolicy::Prefill::kAtEnd;
    traits_.decisions.appends_short_prompts = true;
    // A small budget uses fewer of the prompt's last rows, so the notes depend on the budget.
    traits_.decisions.learns_for_all_budgets = c_.queries == Queries::kReplay;
    traits_.reports_error_curves =
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
      needs.replay = RepeatPrompt(c_.chunk);
      needs.replay.taps = {.column_max = true, .reduce = kernels::TapSpec::Reduce::kMax};
      needs.replay.rows = {.which = Which::kEven, .n = c_.rows, .queries = true, .norms = true};
    }
    return needs;
  }
  // One head may get what the others do not need.
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
  std::unique_ptr<Memory> MakeMemory() const override {
    return std::make_unique<Decision>(decision_);
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode) {
      if (leaves()) generated_.Decide(call, plans);
      return;
    }
    if (leaves() && call.pass == 0) generated_.BeginPrompt(call, call.n_seen > call.budget);
    if (call.n_seen <= call.budget) return;
    Decision& decision = static_cast<Decision&>(*call.memory);
    if (call.pass == 0) decision.BeginLayer(call);
    if (decision_.each_layer) decision.DecideSome(call, plans);
  }

  void ObserveReplay(const LayerCall& call) const override {
    TakeReplay(call, decision_.bias_column);
  }

  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (decision_.each_layer || call.n_seen <= call.budget) return;
    static_cast<Decision&>(*call.memory).DecideSome(call, plans);
  }

 private:
  bool leaves() const { return c_.generated == Generated::kLeave; }

  WinnowConfig c_;
  cache::StateShape state_;  // without that of generated_
  GeneratedEntries generated_;
  DecisionConfig decision_;
  Traits traits_;
};

Result<MethodPtr> Make(const WinnowConfig& c) {
  return MethodPtr(std::make_shared<WinnowMethod>(c));
}

Promise Promises(const WinnowConfig& c, int64_t) {
  return {.merging = c.rest > 0 || c.refit ? Merging::kAny : Merging::kNone,
          .prompt_by_steps = false};
}

}  // namespace

MethodEntry Winnow() {
  return Entry<WinnowConfig, Make, Promises>(
      "winnow", "all heads share one budget, divided by the error that evictions cause in a replay",
      "ours: docs/methods/winnow.md",
      {"queries=window", "rest=0,refit=false", "allocation=top-k,rest=0,refit=false",
       "allocation=uniform,chunk=64", "queries=window,allocation=uniform",
       "generated=leave,recent=4", "generated=leave,recent=3,rest=0",
       "queries=window,allocation=uniform,generated=leave,recent=4"});
}

}  // namespace winnow::compression::methods
