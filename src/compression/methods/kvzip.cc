// KVzip (arXiv:2505.23416): the model reads the prompt a second time, after being asked to repeat
// it. An entry's score is the largest weight that any query of this replay gives it. All layers and
// heads share one budget. No question is involved: what is kept serves any.
// plus=true: the largest weight * |W_O v| / |h|, with h the residual stream at the query (KVzip+).
// Differs from the authors' code: weights come from attention over all entries, where the code
// takes the softmax over sinks, the chunk and its replay; for prompts of one chunk the two are
// equal. Sinks are protected; in the code their score is 1.
#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/methods/repeat_prompt.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/projected_values.h"
#include "compression/select/best_of_heads.h"

namespace winnow::compression::methods {
namespace {

struct KvZipConfig {
  enum class Share { kModel, kLayer, kHead };
  bool plus = false;
  Share share = Share::kModel;  // [paper; layer: option of its code]
  int sinks = 4;                // [code]
  int chunk = 2048;             // [code]
};

template <class Visitor>
void Visit(KvZipConfig& c, Visitor& v) {
  v("plus", c.plus, "weight attention by the value's contribution to the residual stream (KVzip+)");
  v("share", c.share,
    "which heads share a budget: all of the model, those of a layer, or each its own",
    Choices{"model", "layer", "head"});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("chunk", c.chunk, "tokens of the prompt that are repeated at a time", Range{1, 1 << 20});
}

using select::ScoredHead;

struct Scores final : CopiedMemory<Scores> {
  std::vector<ScoredHead> heads;  // [layer * n_kv_heads + kv_head]; region: all but sinks
  int64_t n_call = 0;             // tokens of the prompt call: the newest entries of each head
  // The call's first token that the replay repeats.
  int64_t first_repeated = std::numeric_limits<int64_t>::max();
};

class KvZipMethod final : public Method {
 public:
  explicit KvZipMethod(const KvZipConfig& config)
      : c_(config),
        traits_({.decisions = {.prefill = DecisionPolicy::Prefill::kAtEnd,
                               .learns_for_all_budgets = true,
                               .appends_short_prompts = true},
                 .budget = {.min = config.sinks + 1}}) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    Needs needs;
    needs.replay = RepeatPrompt(c_.chunk);
    needs.replay.taps.reduce = kernels::TapSpec::Reduce::kMax;
    needs.replay.taps.column_max = !c_.plus;
    if (c_.plus) {
      needs.replay.taps = {.last_rows = 1 << 30, .reduce = kernels::TapSpec::Reduce::kNone};
      needs.replay.rows = {.which = attention::RowSpec::Which::kAll, .norms = true};
    }
    return needs;
  }
  int64_t MaxSlots(int64_t, int64_t n) const override { return n; }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(budget, n) * n_layers;
  }
  int64_t LayerSlots(int, int n_layers, int64_t budget, int64_t n) const override {
    return std::min(n, c_.share == KvZipConfig::Share::kModel ? budget * n_layers : budget);
  }
  std::unique_ptr<Memory> MakeMemory() const override { return std::make_unique<Scores>(); }

  void Decide(const LayerCall& call, PlanList&) const override {
    if (call.phase == Phase::kDecode || call.n_seen <= call.budget) return;
    auto& scores = static_cast<Scores&>(*call.memory);
    scores.n_call = call.n_new;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const int64_t n = call.n_slots(head);
      const Region region = {std::min<int64_t>(c_.sinks, n), n};
      scores.heads.push_back(
          {call.layer, head, region, std::vector<double>(static_cast<size_t>(region.size()))});
    }
  }

  void ObserveReplay(const LayerCall& call) const override {
    auto& scores = static_cast<Scores&>(*call.memory);
    scores.first_repeated = std::min(scores.first_repeated, call.replay.first);
    for (int kv_head = 0; kv_head < call.n_kv_heads(); ++kv_head) {
      ScoredHead& head =
          scores.heads[static_cast<size_t>(call.layer * call.n_kv_heads() + kv_head)];
      // A chunk scores its own entries and those that no chunk repeats (of earlier calls, and the
      // text's first token). Entries that another chunk repeats are scored there.
      const int64_t first_of_call = head.region.end - scores.n_call;
      const int64_t first = first_of_call + call.replay.first;
      const auto judged = [&](int64_t rank) {
        return rank < first_of_call + scores.first_repeated ||
               (rank >= first && rank < first + call.replay.n);
      };
      if (!c_.plus) {
        const std::span<const float> largest = call.taps->column_max[static_cast<size_t>(kv_head)];
        Raise(
            call, largest, judged, [](int64_t) { return 1.0; }, head);
        continue;
      }
      for (int q_head = kv_head * call.group(); q_head < (kv_head + 1) * call.group(); ++q_head) {
        const std::vector<double> norms =
            score::ProjectedNorms(call, q_head, head.region, score::Norm::kL2);
        for (int row = 0; row < call.taps->n_last_rows; ++row) {
          const double stream = call.rows->norms[static_cast<size_t>(row)];
          Raise(
              call, call.last_row(q_head, row), judged,
              [&](int64_t rank) {
                return Fraction(norms[static_cast<size_t>(rank - head.region.begin)], stream, 0);
              },
              head);
        }
      }
    }
  }

  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode || call.n_seen <= call.budget) return;
    std::vector<ScoredHead>& all = static_cast<Scores&>(*call.memory).heads;
    const int64_t n_recent = std::min(call.n_protected, call.budget - c_.sinks - 1);
    for (ScoredHead& head : all) {
      head.region.end = std::max(head.region.begin, head.region.end - n_recent);
      head.scores.resize(static_cast<size_t>(head.region.size()));
    }
    const int64_t n_keep = call.budget - c_.sinks - n_recent;
    // Number of heads that share a budget.
    const auto n_kv_heads = static_cast<size_t>(call.n_kv_heads());
    const size_t n_sharing = c_.share == KvZipConfig::Share::kModel   ? all.size()
                             : c_.share == KvZipConfig::Share::kLayer ? n_kv_heads
                                                                      : 1;
    if (n_sharing > 1) {
      for (size_t first = 0; first < all.size(); first += n_sharing) {
        select::KeepBest(call, std::span(all).subspan(first, n_sharing),
                         n_keep * static_cast<int64_t>(n_sharing), plans);
      }
      return;
    }
    for (const ScoredHead& head : all) {
      select::KeepBest(call, {&head, 1}, n_keep, plans);
    }
  }

 private:
  // Raises the scores of the judged entries to weights[slot] * factor(rank) where that is larger.
  template <class Judged, class Factor>
  static void Raise(const LayerCall& call, std::span<const float> weights, const Judged& judged,
                    const Factor& factor, ScoredHead& head) {
    const std::span<const Slot> order = call.order(head.kv_head);
    for (int64_t rank = head.region.begin; rank < head.region.end; ++rank) {
      if (!judged(rank)) continue;
      const double weight = weights[static_cast<size_t>(order[static_cast<size_t>(rank)])];
      double& score = head.scores[static_cast<size_t>(rank - head.region.begin)];
      score = std::max(score, weight * factor(rank), ScoreLess);
    }
  }

  KvZipConfig c_;
  Traits traits_;
};

Result<MethodPtr> Make(const KvZipConfig& c) { return MethodPtr(std::make_shared<KvZipMethod>(c)); }

Promise Promises(const KvZipConfig& c, int64_t) { return {.sinks = c.sinks}; }

}  // namespace

MethodEntry KvZip() {
  return Entry<KvZipConfig, Make, Promises>(
      "kvzip", "entries that the model attends to while it repeats the prompt",
      "KVzip, arXiv:2505.23416", {"plus=true", "share=head"});
}

}  // namespace winnow::compression::methods
