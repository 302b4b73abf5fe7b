#include <algorithm>

#include "compression/budget/budget.h"

namespace winnow::compression::budget {
namespace {

// The entries a layer keeps of a prompt of `n` tokens, beside the protected ones
// (docs/methods/semantics.md#pyramidkv).
int64_t LayerSize(int layer, int n_layers, int64_t mean, int64_t n, int64_t n_protected,
                  const PyramidConfig& c) {
  if (n < 2 * mean || n_layers == 1) return mean;
  int64_t last = mean / c.beta;
  int64_t first = 2 * mean - last;
  if (first >= n - n_protected) {
    first = n - n_protected;
    last = 2 * mean - first;
  }
  const int64_t fall = first - last;
  if (c.steps == PyramidConfig::Steps::kEqual) return first - layer * (fall / (n_layers - 1));
  // On the line from first to last. Two layers equally far from the ends add up to first + last, so
  // that all layers hold n_layers * mean.
  const int from_end = n_layers - 1 - layer;
  if (layer == from_end) return mean;
  const int64_t early = first - (std::min(layer, from_end) * fall + n_layers - 2) / (n_layers - 1);
  return layer < from_end ? early : 2 * mean - early;
}

class PyramidBudgeter final : public Budgeter {
 public:
  explicit PyramidBudgeter(const PyramidConfig& config) : c_(config) {}

  std::string_view name() const override { return "pyramid"; }
  bool holds_budget() const override { return c_.steps == PyramidConfig::Steps::kLine; }
  // The pyramid follows from the length of the text, not of the layer: in chunked prefill layers
  // hold different numbers of entries before the chunk, and the sizes must still add up to the
  // budget.
  void Sizes(const BudgetInput& in, std::span<int64_t> out) const override {
    const int64_t mean = std::max<int64_t>(0, in.call.budget - in.n_protected);
    const int64_t n = std::max(in.call.n_seen, in.region.size() + in.n_protected);
    const int64_t size = n <= in.call.budget ? n
                                             : LayerSize(in.call.layer, in.call.n_layers, mean, n,
                                                         in.n_protected, c_);
    std::fill(out.begin(), out.end(), size);
  }
  int64_t MaxSlots(int64_t budget, int64_t n, int64_t n_protected) const override {
    return Slots(0, 2, budget, n, n_protected);
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int64_t n_protected, int n_layers) const override {
    int64_t sum = 0;
    for (int layer = 0; layer < n_layers; ++layer) {
      sum += Slots(layer, n_layers, budget, n, n_protected);
    }
    return sum;
  }
  int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n,
                     int64_t n_protected) const override {
    return Slots(layer, n_layers, budget, n, n_protected);
  }

 private:
  int64_t Slots(int layer, int n_layers, int64_t budget, int64_t n, int64_t n_protected) const {
    if (n <= budget) return n;
    n_protected = WindowUnder(budget, n_protected);
    return std::min(
        n, n_protected + LayerSize(layer, n_layers, budget - n_protected, n, n_protected, c_));
  }

  PyramidConfig c_;
};

}  // namespace

BudgeterPtr Pyramid(const PyramidConfig& config) {
  return std::make_shared<PyramidBudgeter>(config);
}

}  // namespace winnow::compression::budget
