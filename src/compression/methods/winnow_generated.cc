#include "compression/methods/winnow_generated.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/half.h"
#include "compression/methods/winnow_rest.h"
#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

// Stored as a head's size until it is known. kAsLeft: this method compresses the prompt, and what
// it leaves is the size. kNotKnown: it evicts nothing of the prompt, but another method may.
constexpr double kAsLeft = -1, kNotKnown = 0;
// The score of a rest row, larger than all others.
const Half kRest = std::numeric_limits<float>::infinity();

bool IsRest(Half score) { return score.bits == kRest.bits; }

}  // namespace

void GeneratedEntries::BeginPrompt(const LayerCall& call, bool evicts) const {
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    call.head_number(head, n_held_) = evicts ? kAsLeft : kNotKnown;
  }
}

void GeneratedEntries::NoteScores(const LayerCall& call,
                                  std::span<const std::vector<float>> scores) const {
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const std::span<Half> to = call.half_column(head, score_column_);
    const std::span<const Slot> order = call.order(head);
    const std::vector<float>& of_head = scores[static_cast<size_t>(head)];
    for (size_t rank = 0; rank < order.size(); ++rank) {
      Half& score = to[static_cast<size_t>(order[rank])];
      if (!IsRest(score)) score = std::min(of_head[rank], 1.0f);
    }
  }
}

void GeneratedEntries::NoteRestRows(const LayerCall& call, const Plan& plan) const {
  LayerCall at = call;
  at.layer = plan.layer;
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const std::span<Half> scores = at.half_column(head, score_column_);
    for (const auto& merge : plan.heads[static_cast<size_t>(head)].merges) {
      scores[static_cast<size_t>(merge.into)] = kRest;
    }
  }
}

// A head's size is what the prompt left it. If nothing of the prompt was evicted, it is the layer's
// budget, whether the head holds less (it may grow) or more (another method read the prompt).
void GeneratedEntries::SettleSizes(const LayerCall& call) const {
  if (call.head_number(0, n_held_) > 0) return;
  const int n_heads = call.n_kv_heads();
  const int64_t n_before = call.n_seen - call.n_new;
  bool whole = call.head_number(0, n_held_) == kNotKnown;
  for (int head = 0; head < n_heads; ++head) {
    whole = whole && call.n_slots(head) - call.n_new == n_before;
  }
  for (int head = 0; head < n_heads; ++head) {
    const int64_t n = whole ? call.budget : call.n_slots(head) - call.n_new;
    call.head_number(head, n_held_) = static_cast<double>(std::max<int64_t>(1, n));
  }
}

void GeneratedEntries::Decide(const LayerCall& call, PlanList& plans) const {
  SettleSizes(call);
  Plan* plan = nullptr;
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const int64_t n_held = CountFrom(call.head_number(head, n_held_));
    const int64_t n = call.n_slots(head);
    const std::span<Half> scores = call.half_column(head, score_column_);
    const std::span<const Slot> order = call.order(head);
    const std::vector<float>& weights = call.taps->column_max[static_cast<size_t>(head)];
    for (int64_t rank = 0; rank < n - c_.recent; ++rank) {
      const auto slot = static_cast<size_t>(order[static_cast<size_t>(rank)]);
      if (weights[slot] > scores[slot]) scores[slot] = weights[slot];
    }
    const int64_t n_evict = n - n_held - c_.recent;
    if (n_evict < c_.recent) continue;
    if (plan == nullptr) plan = &plans.Add(call.layer, call.n_kv_heads());
    Leave(call, head, n_evict, plan->heads[static_cast<size_t>(head)]);
  }
}

void GeneratedEntries::Leave(const LayerCall& call, int head, int64_t n_evict,
                             cache::HeadPlan& plan) const {
  const std::span<Half> scores = call.half_column(head, score_column_);
  const std::span<const Slot> order = call.order(head);
  const auto n = static_cast<size_t>(call.n_slots(head) - c_.recent);
  std::vector<double>& by_rank = call.scratch.numbers;
  by_rank.resize(n);
  int32_t rest = -1;
  for (size_t rank = 0; rank < n; ++rank) {
    const Half score = scores[static_cast<size_t>(order[rank])];
    by_rank[rank] = score;
    if (IsRest(score)) rest = static_cast<int32_t>(rank);
  }
  std::vector<int32_t>& ranks = call.scratch.ranks;
  ranks.resize(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  const bool rests = bias_column_ >= 0;
  // The newest of the leaving entries becomes the first rest row.
  if (rests && rest < 0) ++n_evict;
  const auto end = ranks.begin() + std::min(n_evict, static_cast<int64_t>(n));
  std::nth_element(ranks.begin(), end, ranks.end(), WorstFirst{by_rank});
  std::sort(ranks.begin(), end);
  std::span<const int32_t> evicted(ranks.begin(), end);
  if (rests) {
    if (rest < 0) {
      rest = evicted.back();
      evicted = evicted.first(evicted.size() - 1);
    }
    MergeIntoRestRow(call, head, evicted, rest, plan);
  }
  for (const int32_t rank : evicted) plan.evict.push_back(order[static_cast<size_t>(rank)]);
  for (size_t rank = 0; rank < n; ++rank) {
    Half& score = scores[static_cast<size_t>(order[rank])];
    if (!IsRest(score)) score = static_cast<float>(c_.decay) * score;
  }
}

void GeneratedEntries::MergeIntoRestRow(const LayerCall& call, int head,
                                        std::span<const int32_t> evicted, int32_t rest,
                                        cache::HeadPlan& plan) const {
  const std::span<const Slot> order = call.order(head);
  const Slot into = order[static_cast<size_t>(rest)];
  const std::span<const Half> biases = call.half_column(head, bias_column_);
  const auto n_entries = [&](Slot slot) {
    return std::exp(double{biases[static_cast<size_t>(slot)]});
  };
  double n_all = n_entries(into);
  for (const int32_t rank : evicted) n_all += n_entries(order[static_cast<size_t>(rank)]);
  const auto add = [&](Slot slot) {
    const auto weight = static_cast<float>(n_entries(slot) / n_all);
    plan.sources.push_back({.row = slot, .key_weight = weight, .value_weight = weight});
  };
  add(into);
  for (const int32_t rank : evicted) add(order[static_cast<size_t>(rank)]);
  plan.merges.push_back({.into = into, .n_sources = static_cast<int>(evicted.size()) + 1});
  plan.biases.push_back({into, static_cast<float>(std::min(std::log(n_all), kMaxBias))});
  call.half_column(head, score_column_)[static_cast<size_t>(into)] = kRest;
}

Method::Sizes GeneratedEntries::Sizes(int64_t budget, int64_t n, int n_layers) const {
  const int64_t total = std::min(n, budget + 2 * int64_t{c_.recent}) * n_layers;
  const int64_t layer = std::min(n, total);
  return {.layer_slots = layer, .layer_rows = layer, .total_slots = total, .total_rows = total};
}

}  // namespace winnow::compression::methods
