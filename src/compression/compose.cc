#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "compression/parts.h"
#include "compression/taps.h"

namespace winnow::compression {
namespace {

// The needs of one part, and where its state begins.
struct Place {
  Needs needs;
  cache::StateShape first;

  // The call as this part sees it. `joined` is what was asked of attention for all parts.
  LayerCall For(const LayerCall& call, const Needs& joined) const {
    const bool prefill = call.phase == Phase::kPrefill;
    const kernels::TapSpec& wanted = prefill ? needs.prefill : needs.decode;
    kernels::Taps& reduced = call.scratch.reduced[static_cast<size_t>(wanted.reduce)];
    const kernels::Taps& taps = ReduceTapsTo(wanted, prefill ? joined.prefill : joined.decode,
                                             *call.taps, call.group(), reduced);
    LayerCall own = call.WithTaps(taps);
    own.first += first;
    return own;
  }
};

// Scores of the heads of a layer, in call.scratch.scores.
class LayerScores {
 public:
  LayerScores(const Scorer& scorer, const LayerCall& call) : scorer_(scorer), call_(call) {}

  // Adds the part `read` of a head's region. Its scores are valid after Finish.
  void Add(int head, Region region, Region read) {
    std::vector<double>& scores = call_.scratch.scores[static_cast<size_t>(head)];
    if (scorer_.one_score_per_layer()) {
      if (last_ >= 0 && call_.n_slots(last_) == call_.n_slots(head)) {
        scores = call_.scratch.scores[static_cast<size_t>(last_)];
        return;
      }
      last_ = head;
    }
    scores.resize(static_cast<size_t>(region.size()));
    wanted_[n_wanted_++] = {
        .kv_head = head,
        .region = read,
        .out = std::span(scores).subspan(static_cast<size_t>(read.begin - region.begin),
                                         static_cast<size_t>(read.size()))};
    // The next head may copy the scores of the layer.
    if (n_wanted_ == wanted_.size() || scorer_.one_score_per_layer()) Finish();
  }
  void Finish() {
    scorer_.ScoreHeads(call_, std::span(wanted_).first(n_wanted_));
    n_wanted_ = 0;
  }

 private:
  const Scorer& scorer_;
  const LayerCall& call_;
  std::array<Scorer::HeadScores, Scorer::kMaxHeads> wanted_;
  size_t n_wanted_ = 0;
  int last_ = -1;  // the head last scored for the layer; -1 before the first
};

Traits MakeTraits(const Composition& c) {
  return {.storage = c.storage,
          .decisions = {.evicts_in_decode = c.when == When::kStep,
                        .shares_threads = c.score->shares_threads() || c.merge != nullptr},
          .budget = {.needed = c.budget->needs_budget(),
                     .held = c.budget->holds_budget(),
                     .min = c.min_budget}};
}

class Composed final : public Method {
 public:
  explicit Composed(Composition composition) : c_(std::move(composition)), traits_(MakeTraits(c_)) {
    const auto add = [&](const Needs& part) {
      needs_.prefill = Join(needs_.prefill, part.prefill);
      needs_.decode = Join(needs_.decode, part.decode);
      // Parts that ask for different shares do not fit together.
      WINNOW_CHECK(needs_.last_sums_share == 0 || part.last_sums_share == 0 ||
                   needs_.last_sums_share == part.last_sums_share);
      needs_.last_sums_share = std::max(needs_.last_sums_share, part.last_sums_share);
      // At most one part reads rows.
      WINNOW_CHECK(!needs_.prompt_rows.any() || !part.prompt_rows.any());
      WINNOW_CHECK(!part.replay.any());
      if (part.prompt_rows.any()) needs_.prompt_rows = part.prompt_rows;
      Place place = {.needs = part, .first = needs_.state};
      needs_.state += part.state;
      return place;
    };
    score_at_ = add(c_.score->needs());
    budget_at_ = add(c_.budget->needs());
    select_at_ = add(c_.select->needs());
    if (c_.merge) merge_at_ = add(c_.merge->needs());
    if (c_.prefill.select) prefill_select_at_ = add(c_.prefill.select->needs());
  }

  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return needs_; }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    return c_.budget->MaxSlots(budget, n, NumberProtected(budget));
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return c_.budget->TotalSlots(budget, n, NumberProtected(budget), n_layers);
  }
  int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n) const override {
    return c_.budget->LayerSlots(layer, n_layers, budget, n, NumberProtected(budget));
  }
  Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const override {
    Sizes sizes = Method::DecodeSizes(budget, n_prompt, n, n_layers);
    if (traits_.budget.held) return sizes;
    // Rounding makes the layers' sizes change with the text; the largest layer only grows.
    sizes.total_slots = sizes.layer_slots * n_layers;
    sizes.total_rows = sizes.layer_rows * n_layers;
    return sizes;
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    // Prefill calls may have a selector of their own; the decode selector observes them too.
    const bool other = call.phase == Phase::kPrefill && c_.prefill.select != nullptr;
    const Scorer& scorer = *c_.score;
    const Selector& selector = other ? *c_.prefill.select : *c_.select;
    const LayerCall score_call = score_at_.For(call, needs_);
    const LayerCall select_call = (other ? prefill_select_at_ : select_at_).For(call, needs_);
    const LayerCall budget_call = budget_at_.For(call, needs_);
    const LayerCall merge_call = merge_at_.For(call, needs_);
    if (call.pass == 0) {
      scorer.Observe(score_call);
      c_.budget->Observe(budget_call);
      selector.Observe(select_call);
      if (other) c_.select->Observe(select_at_.For(call, needs_));
      if (c_.merge) c_.merge->Observe(merge_call);
    }
    if (call.phase == Phase::kDecode && c_.when == When::kPrefill) return;

    const int n_heads = call.n_kv_heads();
    const Protect protect = other ? c_.prefill.protect(call) : ProtectedIn(call);
    int64_t longest = 0;
    for (int head = 0; head < n_heads; ++head) longest = std::max(longest, call.n_slots(head));
    const Region largest = CandidateRegion(protect, longest);
    const int64_t n_protected = longest - largest.size();
    const auto heads = static_cast<size_t>(n_heads);
    Scratch& scratch = call.scratch;
    if (scratch.scores.size() < heads) scratch.scores.resize(heads);
    if (scratch.evicted.size() < heads) scratch.evicted.resize(heads);
    scratch.sizes.resize(heads);
    LayerScores scores(scorer, score_call);
    if (c_.budget->reads_scores()) {
      for (int head = 0; head < n_heads; ++head) {
        const Region region = CandidateRegion(protect, call.n_slots(head));
        scores.Add(head, region, region);
      }
      scores.Finish();
    }
    c_.budget->Sizes({.call = budget_call,
                      .region = largest,
                      .n_protected = n_protected,
                      .scores = std::span(scratch.scores).first(heads)},
                     scratch.sizes);

    const auto input_of = [&](int head) -> SelectInput {
      const Region region = CandidateRegion(protect, call.n_slots(head));
      const int64_t n_keep = scratch.sizes[static_cast<size_t>(head)];
      WINNOW_CHECK(n_keep >= 0);
      return {
          .call = select_call, .kv_head = head, .region = region, .n_keep = n_keep, .scores = {}};
    };
    if (!c_.budget->reads_scores()) {
      const bool alone = scorer.independent_of_region() && !scorer.one_score_per_layer();
      for (int head = 0; head < n_heads; ++head) {
        const SelectInput input = input_of(head);
        if (input.n_keep >= input.region.size()) continue;
        scores.Add(head, input.region, alone ? selector.Reads(input) : input.region);
      }
      scores.Finish();
    }
    for (std::vector<int32_t>& ranks : scratch.evicted) ranks.clear();
    for (int head = 0; head < n_heads; ++head) {
      SelectInput input = input_of(head);
      if (input.n_keep >= input.region.size()) continue;
      input.scores = scratch.scores[static_cast<size_t>(head)];
      selector.Evict(input, scratch.evicted[static_cast<size_t>(head)]);
    }

    const auto evicted = std::span<const std::vector<int32_t>>(scratch.evicted).first(heads);
    if (std::ranges::all_of(evicted, &std::vector<int32_t>::empty)) return;
    Plan& plan = plans.Add(call.layer, n_heads);
    if (c_.merge) {
      c_.merge->Merge({.call = merge_call, .protected_entries = protect, .evicted = evicted}, plan);
    }
    for (int head = 0; head < n_heads; ++head) {
      const std::span<const Slot> order = call.order(head);
      for (const int32_t rank : evicted[static_cast<size_t>(head)]) {
        WINNOW_DCHECK(rank >= protect.sinks && rank < std::ssize(order) - protect.recent);
        plan.heads[static_cast<size_t>(head)].evict.push_back(order[static_cast<size_t>(rank)]);
      }
    }
  }

 private:
  Protect ProtectedIn(const LayerCall& call) const {
    const Protect configured = c_.protected_entries.Under(call.budget);
    return c_.protect ? c_.protect(configured, call) : configured;
  }
  int64_t NumberProtected(int64_t budget) const {
    const Protect configured = c_.protected_entries.Under(budget);
    return configured.sinks + configured.recent;
  }

  static Region CandidateRegion(const Protect& protect, int64_t n_slots) {
    const int64_t begin = std::min(protect.sinks, n_slots);
    return {begin, std::max(begin, n_slots - protect.recent)};
  }

  Composition c_;
  Traits traits_;
  Needs needs_;
  Place score_at_, budget_at_, select_at_, merge_at_, prefill_select_at_;
};

}  // namespace

MethodPtr Compose(Composition composition) {
  WINNOW_CHECK(composition.score && composition.budget && composition.select);
  WINNOW_CHECK((composition.prefill.select == nullptr) == (composition.prefill.protect == nullptr));
  return std::make_shared<Composed>(std::move(composition));
}

Protect WindowWithin(const Protect& configured, const LayerCall& call) {
  Protect protect = configured;
  protect.recent = WindowUnder(call.budget, protect.recent);
  return protect;
}

int64_t WindowUnder(int64_t budget, int64_t window) {
  return budget > 0 && budget <= window ? std::max<int64_t>(1, budget / 2) : window;
}

int64_t BlockUnder(int64_t budget, int64_t sinks, int64_t block) {
  const bool small = budget > 0 && budget < sinks + 2 * block;
  return small ? std::max<int64_t>(1, (budget - sinks) / 4) : block;
}

}  // namespace winnow::compression
