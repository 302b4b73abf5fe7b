#include <vector>

#include "compression/merge/merge.h"

namespace winnow::compression::merge {
namespace {

class NextMerger final : public Merger {
 public:
  std::string_view name() const override { return "next"; }
  bool merges_keys() const override { return true; }

  void Merge(const MergeInput& input, cache::HeadPlan& plan) const override {
    const std::span<const Slot> order = input.call.order(input.kv_head);
    const std::span<const int32_t> evicted = input.evicted;
    for (size_t begin = 0; begin < evicted.size();) {
      size_t end = begin + 1;
      while (end < evicted.size() && evicted[end] == evicted[end - 1] + 1) ++end;
      const auto next = static_cast<size_t>(evicted[end - 1]) + 1;
      const bool protected_entry = static_cast<int64_t>(next) >= input.region.end;
      if (!protected_entry) Mean(order, evicted.subspan(begin, end - begin), order[next], plan);
      begin = end;
    }
  }

 private:
  static void Mean(std::span<const Slot> order, std::span<const int32_t> ranks, Slot into,
                   cache::HeadPlan& plan) {
    const float weight = 1.0F / static_cast<float>(ranks.size() + 1);
    plan.merges.push_back({.into = into, .n_sources = static_cast<int>(ranks.size()) + 1});
    plan.sources.push_back({.row = into, .key_weight = weight, .value_weight = weight});
    for (const int32_t rank : ranks) {
      plan.sources.push_back(
          {.row = order[static_cast<size_t>(rank)], .key_weight = weight, .value_weight = weight});
    }
  }
};

}  // namespace

MergerPtr Next() { return std::make_shared<NextMerger>(); }

}  // namespace winnow::compression::merge
