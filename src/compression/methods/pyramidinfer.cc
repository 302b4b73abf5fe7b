// PyramidInfer (arXiv:2405.12532): in prefill, each layer passes on fewer context tokens than it
// received: those that the recent tokens attend to. Later layers do not compute the others, so the
// prompt's outputs change.
// Implements Method rather than combining parts: it also selects the rows that later layers compute
// (PlanList::kept_rows).
// Differs from the paper: of the recent tokens only the newest `rows` vote. In decode, votes come
// from all queries since the prompt that saw the entry; they are kept as sums, not rows.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct PyramidInferConfig {
  double recent = 0.2;            // share of the prompt that is recent: votes and stays  [paper]
  double last_layer_share = 0.9;  // share of its context that the last layer keeps  [ours]
  int sinks = 4;                  // first tokens that always stay  [authors' code]
  int min_context = 64;           // a context is never reduced to this size or below  [same]
  int block = 16;                 // generated tokens that are thinned together  [same]
  double slope = 0.2;             // the newest vote weighs 1 + slope, the oldest 1  [same]
  int rows = 512;                 // maximum number of voters: bounds the taps' memory  [ours]
};

template <class Visitor>
void Visit(PyramidInferConfig& c, Visitor& v) {
  v("recent", c.recent, "share of the prompt that is recent: it votes, and stays", Range{0, 1});
  v("least", c.last_layer_share, "share of its context that the last layer keeps", Range{0, 1});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("min_context", c.min_context, "a context is never reduced to this many tokens or fewer",
    Range{0, 1 << 20});
  v("block", c.block, "generated tokens that are thinned together", Range{1, 1 << 20});
  v("slope", c.slope, "weight of the newest vote minus that of the oldest", Range{0, 100});
  v("rows", c.rows, "recent tokens that vote, at most", Range{1, 1 << 16});
}

// Columns, over generated queries: the sum of their weights, and of weight times query index.
constexpr int kVotes = 0;
constexpr int kVotesByTime = 1;
// Layer numbers.
constexpr int kRecent = 0;   // length of the recent window, tokens
constexpr int kPending = 1;  // generated tokens since the last thinning
constexpr int kSteps = 2;    // generated tokens since the prompt

class PyramidInferMethod final : public Method {
 public:
  explicit PyramidInferMethod(const PyramidInferConfig& c)
      : c_(c),
        traits_({.rows = RowPolicy::kKept,
                 .decisions = {.evicts_in_decode = true},
                 .budget = {.needed = false, .held = false}}),
        top_k_(select::TopK()) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    return {.prefill = {.last_rows = c_.rows},
            .decode = {.last_rows = 1},
            .state = {.n_columns = 2, .n_layer_numbers = 3}};
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kPrefill) {
      Prefill(call, plans);
    } else {
      Step(call, plans);
    }
  }

 private:
  // The share of its context that a layer keeps.
  double Keep(const LayerCall& call) const {
    const double way = std::numbers::pi * call.layer / call.n_layers;
    return c_.last_layer_share + (1 - c_.last_layer_share) * (std::cos(way) + 1) / 2;
  }

  void Prefill(const LayerCall& call, PlanList& plans) const {
    const int64_t n_slots = Shortest(call);
    const int64_t n_recent = 1 + CountFrom(c_.recent * static_cast<double>(call.n_seen));
    call.layer_number(kRecent) = static_cast<double>(n_recent);
    call.layer_number(kPending) = 0;
    call.layer_number(kSteps) = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      std::ranges::fill(call.column(head, kVotes), 0.0);
      std::ranges::fill(call.column(head, kVotesByTime), 0.0);
    }
    const int64_t n_context = n_slots - n_recent;
    const int64_t n_keep = CountFrom(Keep(call) * static_cast<double>(n_context));
    if (n_context <= 0 || n_keep <= c_.min_context) return;

    const Region region = {.begin = std::min<int64_t>(c_.sinks, n_context), .end = n_context};
    const int n_rows = static_cast<int>(std::min<int64_t>(call.taps->n_last_rows, n_recent));
    std::vector<double>& scores = call.scratch.numbers;
    scores.assign(static_cast<size_t>(region.size()), 0.0);
    for (int row = 0; row < n_rows; ++row) {
      const double weight = n_rows == 1 ? 1 : 1 + c_.slope * row / (n_rows - 1);
      AddRow(call, call.taps->n_last_rows - n_rows + row, weight, region, scores);
    }
    Thin(call, region, n_keep - region.begin, plans);
  }

  void Step(const LayerCall& call, PlanList& plans) const {
    const double now = call.layer_number(kSteps)++;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<const float> row = call.last_row(head, 0);
      const std::span<double> votes = call.column(head, kVotes);
      const std::span<double> by_time = call.column(head, kVotesByTime);
      for (size_t slot = 0; slot < row.size(); ++slot) {
        votes[slot] += row[slot];
        by_time[slot] += now * row[slot];
      }
    }
    if (++call.layer_number(kPending) < c_.block) return;
    call.layer_number(kPending) = 0;

    // The block that just left the recent window. If another method read the prompt, heads may hold
    // different numbers of older entries: ranks are those of the shortest head.
    const int64_t n_context = Shortest(call) - CountFrom(call.layer_number(kRecent));
    const Region region = {.begin = std::max<int64_t>(c_.sinks, n_context - c_.block),
                           .end = std::max<int64_t>(c_.sinks, n_context)};
    const int64_t n_keep = CountFrom(Keep(call) * static_cast<double>(region.size()));
    if (region.begin + n_keep <= c_.min_context) return;

    // The mean vote of the newest n_votes queries, weighted by time.
    std::vector<double>& scores = call.scratch.numbers;
    scores.assign(static_cast<size_t>(region.size()), 0.0);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<const Slot> order = call.order(head);
      const std::span<const double> votes = call.column(head, kVotes);
      const std::span<const double> by_time = call.column(head, kVotesByTime);
      const int64_t begin = Offset(call, head) + region.begin;
      for (size_t i = 0; i < scores.size(); ++i) {
        const int64_t rank = begin + static_cast<int64_t>(i);
        const auto slot = static_cast<size_t>(order[static_cast<size_t>(rank)]);
        const auto age = static_cast<double>(call.n_slots(head) - rank);
        const double n_votes = std::min(age, now + 1);
        const double first = now + 1 - n_votes;
        const double slope = n_votes > 1 ? c_.slope / (n_votes - 1) : 0;
        scores[i] += (votes[slot] + slope * (by_time[slot] - first * votes[slot])) / n_votes;
      }
    }
    Thin(call, region, n_keep, plans);
  }

  static int64_t Shortest(const LayerCall& call) {
    int64_t shortest = call.n_slots(0);
    for (int head = 1; head < call.n_kv_heads(); ++head) {
      shortest = std::min(shortest, call.n_slots(head));
    }
    return shortest;
  }
  // How many older entries a head holds beyond those of the shortest head.
  static int64_t Offset(const LayerCall& call, int head) {
    return call.n_slots(head) - Shortest(call);
  }

  // All heads of a layer keep the same tokens, so votes are summed over the heads.
  void AddRow(const LayerCall& call, int row, double weight, Region region,
              std::vector<double>& scores) const {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<const float> weights = call.last_row(head, row);
      const std::span<const Slot> order =
          call.order(head).subspan(static_cast<size_t>(Offset(call, head) + region.begin));
      for (size_t i = 0; i < scores.size(); ++i) {
        const Slot slot = order[i];
        scores[i] += weight * weights[static_cast<size_t>(slot)];
      }
    }
  }

  // Evicts all but the n_keep best of the region, by scratch.numbers.
  void Thin(const LayerCall& call, Region region, int64_t n_keep, PlanList& plans) const {
    if (n_keep >= region.size()) return;
    std::vector<int32_t>& evicted = call.scratch.ranks;
    evicted.clear();
    top_k_->Evict({.call = call,
                   .kv_head = 0,
                   .region = region,
                   .n_keep = std::max<int64_t>(0, n_keep),
                   .scores = call.scratch.numbers},
                  evicted);
    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<const Slot> order =
          call.order(head).subspan(static_cast<size_t>(Offset(call, head)));
      for (const int32_t rank : evicted) {
        plan.heads[static_cast<size_t>(head)].evict.push_back(order[static_cast<size_t>(rank)]);
      }
    }
    if (call.phase == Phase::kDecode) return;
    // The call's tokens are the newest ranks.
    const int64_t n_ranks = Shortest(call);
    const int64_t first_new = n_ranks - call.n_new;
    size_t next = 0;
    for (int64_t rank = 0; rank < n_ranks; ++rank) {
      if (next < evicted.size() && evicted[next] == rank) {
        ++next;
      } else if (rank >= first_new) {
        plans.kept_rows.push_back(static_cast<int32_t>(rank - first_new));
      }
    }
  }

  PyramidInferConfig c_;
  Traits traits_;
  select::SelectorPtr top_k_;
};

Result<MethodPtr> Make(const PyramidInferConfig& c) {
  return MethodPtr(std::make_shared<PyramidInferMethod>(c));
}

Promise Promises(const PyramidInferConfig& c, int64_t) {
  return {.exact = false, .sinks = c.sinks, .recent = 1, .prompt_by_steps = false};
}

}  // namespace

MethodEntry PyramidInfer() {
  return Entry<PyramidInferConfig, Make, Promises>(
      "pyramidinfer", "later layers compute fewer and fewer context tokens",
      "PyramidInfer, arXiv:2405.12532");
}

}  // namespace winnow::compression::methods
