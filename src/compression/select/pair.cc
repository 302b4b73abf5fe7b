#include <algorithm>
#include <numeric>
#include <vector>

#include "compression/numbers.h"
#include "compression/select/select.h"
#include "compression/select/tree.h"

namespace winnow::compression::select {
namespace {

class PairSelector final : public Selector {
 public:
  explicit PairSelector(const PairConfig& config) : c_(config) {}

  std::string_view name() const override { return "pair"; }
  cache::StateShape state() const override { return {.n_head_numbers = 1}; }
  // A single eviction takes one of the two entries at the pointer.
  Region Reads(const SelectInput& in) const override {
    if (in.n_keep == 0 || in.region.size() != in.n_keep + 1) return in.region;
    const int64_t left = in.region.begin + Pointer(in) % in.n_keep;
    return {left, left + 2};
  }
  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const auto first = static_cast<int32_t>(in.region.begin);
    if (in.n_keep == 0) {
      evicted.resize(in.scores.size());
      std::iota(evicted.begin(), evicted.end(), first);
      return;
    }
    Tree tree({.pointer = Pointer(in), .cycle = c_.cycle, .select_left = c_.select_left},
              in.call.scratch.indices);
    for (int32_t i = 0; i < static_cast<int32_t>(in.scores.size()); ++i) {
      tree.Append(i);
      if (tree.size() > in.n_keep) evicted.push_back(first + tree.Evict(in.scores));
    }
    std::sort(evicted.begin(), evicted.end());
    in.call.head_number(in.kv_head, 0) = static_cast<double>(tree.pointer());
  }

 private:
  static int64_t Pointer(const SelectInput& in) {
    return CountFrom(in.call.head_number(in.kv_head, 0));
  }

  PairConfig c_;
};

}  // namespace

SelectorPtr Pair(const PairConfig& config) { return std::make_shared<PairSelector>(config); }

}  // namespace winnow::compression::select
