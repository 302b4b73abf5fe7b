#include <iterator>
#include <span>
#include <vector>

#include "compression/merge/merge.h"

namespace winnow::compression::merge {
namespace {

class NextMerger final : public Merger {
 public:
  std::string_view name() const override { return "next"; }
  bool merges_keys() const override { return true; }

  void Merge(const MergeInput& input, Plan& plan) const override {
    for (size_t head = 0; head < input.evicted.size(); ++head) {
      const std::span<const Slot> order = input.call.order(static_cast<int>(head));
      const int64_t end = std::ssize(order) - input.protected_entries.recent;
      MergeHead(order, input.evicted[head], end, plan.heads[head]);
    }
  }

 private:
  // `open_end`: ranks from there on are protected.
  static void MergeHead(std::span<const Slot> order, std::span<const int32_t> evicted,
                        int64_t open_end, cache::HeadPlan& plan) {
    for (size_t begin = 0; begin < evicted.size();) {
      size_t end = begin + 1;
      while (end < evicted.size() && evicted[end] == evicted[end - 1] + 1) ++end;
      const auto next = static_cast<size_t>(evicted[end - 1]) + 1;
      const bool protected_entry = static_cast<int64_t>(next) >= open_end;
      if (!protected_entry) Mean(order, evicted.subspan(begin, end - begin), order[next], plan);
      begin = end;
    }
  }

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
