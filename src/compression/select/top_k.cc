#include <algorithm>
#include <numeric>

#include "compression/numbers.h"
#include "compression/select/select.h"
#include "compression/select/worst.h"

namespace winnow::compression::select {
namespace {

class TopKSelector final : public Selector {
 public:
  std::string_view name() const override { return "topk"; }
  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const int64_t n_evict = in.region.size() - in.n_keep;
    const auto first = static_cast<int32_t>(in.region.begin);
    if (n_evict <= 0) return;
    if (n_evict == 1) {
      evicted.push_back(first + static_cast<int32_t>(OldestWorst(in.scores)));
      return;
    }
    evicted.resize(in.scores.size());
    std::iota(evicted.begin(), evicted.end(), 0);
    std::nth_element(evicted.begin(), evicted.begin() + n_evict - 1, evicted.end(),
                     WorstFirst{in.scores});
    evicted.resize(static_cast<size_t>(n_evict));
    std::sort(evicted.begin(), evicted.end());
    for (int32_t& rank : evicted) rank += first;
  }
};

}  // namespace

SelectorPtr TopK() { return std::make_shared<TopKSelector>(); }

}  // namespace winnow::compression::select
