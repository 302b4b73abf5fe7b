#include <algorithm>
#include <vector>

#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class WindowScorer final : public Scorer {
 public:
  explicit WindowScorer(const WindowConfig& config) : c_(config) {}

  std::string_view name() const override { return "window"; }
  Needs needs() const override {
    // The prefix softmax divides each query head by its own mass, so it needs unreduced rows.
    const auto reduce =
        c_.prefix_softmax ? kernels::TapSpec::Reduce::kNone : TapReduceFrom(c_.reduce);
    return {.prefill = {.last_rows = c_.window, .reduce = reduce}, .decode = {}, .state = {}};
  }
  int n_rows_summed(const LayerCall& call) const override {
    return static_cast<int>(
        std::min<int64_t>(call.taps->n_last_rows, WindowUnder(call.budget, c_.window)));
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 0.0);
    const std::span<const Slot> order = call.order(kv_head);
    const int n_rows = n_rows_summed(call);
    for (int row = call.taps->n_last_rows - n_rows; row < call.taps->n_last_rows; ++row) {
      if (c_.prefix_softmax) {
        AddPrefixSums(call, kv_head, row, region, out);
        continue;
      }
      const std::span<const float> weights = call.last_row(kv_head, row);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] += weights[static_cast<size_t>(order[static_cast<size_t>(region.begin) + i])];
      }
    }
    Smooth(c_.pool, c_.kernel, call.scratch.numbers, out);
  }

 private:
  // Adds one row's votes: each query head's softmax is taken over the entries before the window,
  // then reduced over the group.
  void AddPrefixSums(const LayerCall& call, int kv_head, int row, Region region,
                     std::span<double> out) const {
    const std::span<const Slot> order = call.order(kv_head);
    std::vector<double>& reduced = call.scratch.numbers;
    reduced.assign(out.size(), 0.0);
    for (int head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
      const std::span<const float> weights = call.last_row(head, row);
      const auto weight = [&](int64_t rank) {
        return double{weights[static_cast<size_t>(order[static_cast<size_t>(rank)])]};
      };
      double mass = 0;
      for (int64_t rank = 0; rank < region.end; ++rank) mass += weight(rank);
      if (mass == 0) continue;
      for (size_t i = 0; i < out.size(); ++i) {
        const double vote = weight(region.begin + static_cast<int64_t>(i)) / mass;
        reduced[i] = c_.reduce == Reduce::kMax ? std::max(reduced[i], vote) : reduced[i] + vote;
      }
    }
    const double share = c_.reduce == Reduce::kMean ? 1.0 / call.group() : 1.0;
    for (size_t i = 0; i < out.size(); ++i) out[i] += share * reduced[i];
  }

  WindowConfig c_;
};

}  // namespace

ScorerPtr Window(const WindowConfig& config) { return std::make_shared<WindowScorer>(config); }

}  // namespace winnow::compression::score
