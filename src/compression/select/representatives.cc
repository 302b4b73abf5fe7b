#include <algorithm>

#include "compression/numbers.h"
#include "compression/select/select.h"

namespace winnow::compression::select {
namespace {

class RepresentativesSelector final : public Selector {
 public:
  explicit RepresentativesSelector(const RepresentativesConfig& config) : c_(config) {}

  std::string_view name() const override { return "representatives"; }
  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const int64_t n = in.region.size();
    for (int64_t block = 0; block < in.n_keep; ++block) {
      const int64_t begin = block * n / in.n_keep;
      const int64_t end = (block + 1) * n / in.n_keep;
      AddOthers(in, begin, end, Representative(in, begin, end), evicted);
    }
    if (in.n_keep == 0) AddOthers(in, 0, n, n, evicted);
  }

 private:
  // The entry that stays of the region's entries [begin, end).
  int64_t Representative(const SelectInput& in, int64_t begin, int64_t end) const {
    switch (c_.which) {
      case RepresentativesConfig::Which::kFirst:
        return begin;
      case RepresentativesConfig::Which::kLast:
        return end - 1;
      case RepresentativesConfig::Which::kBest:
        break;
    }
    const BestFirst better = {in.scores};
    int64_t best = begin;
    for (int64_t i = begin + 1; i < end; ++i) {
      if (better(static_cast<int32_t>(i), static_cast<int32_t>(best))) best = i;
    }
    return best;
  }
  static void AddOthers(const SelectInput& in, int64_t begin, int64_t end, int64_t stays,
                        std::vector<int32_t>& evicted) {
    for (int64_t i = begin; i < end; ++i) {
      if (i != stays) evicted.push_back(static_cast<int32_t>(in.region.begin + i));
    }
  }

  RepresentativesConfig c_;
};

}  // namespace

SelectorPtr Representatives(const RepresentativesConfig& config) {
  return std::make_shared<RepresentativesSelector>(config);
}

}  // namespace winnow::compression::select
