#include <algorithm>
#include <functional>
#include <vector>

#include "compression/budget/budget.h"

namespace winnow::compression::budget {
namespace {

// Best first; of equal ones the newer, then that of the first head.
bool Better(const Candidate& a, const Candidate& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.position != b.position ? a.position > b.position : a.kv_head < b.kv_head;
}

class CompetingBudgeter final : public Budgeter {
 public:
  explicit CompetingBudgeter(const CompetingConfig& config) : c_(config) {}

  std::string_view name() const override { return "competing"; }
  bool reads_scores() const override { return true; }
  void Sizes(const BudgetInput& in, std::span<int64_t> out) const override {
    const int64_t mean = std::max<int64_t>(0, in.call.budget - in.n_protected);
    const auto reserved = static_cast<int64_t>(c_.alpha * static_cast<double>(mean));
    // Entries that their heads have not reserved.
    std::vector<Candidate>& candidates = in.call.scratch.candidates;
    candidates.clear();
    int64_t n_places = 0;
    for (size_t head = 0; head < out.size(); ++head) {
      AddCandidates(in, static_cast<int>(head), reserved, candidates);
      out[head] = std::min(reserved, static_cast<int64_t>(in.scores[head].size()));
      n_places += mean - out[head];
    }
    n_places = std::min(n_places, static_cast<int64_t>(candidates.size()));
    std::nth_element(candidates.begin(), candidates.begin() + n_places, candidates.end(), Better);
    for (int64_t i = 0; i < n_places; ++i) {
      ++out[static_cast<size_t>(candidates[static_cast<size_t>(i)].kv_head)];
    }
  }
  // One head may take all that its layer has.
  int64_t MostSlots(int64_t, int64_t n, int64_t) const override { return n; }

 private:
  // All entries of the region but the head's best `reserved`.
  static void AddCandidates(const BudgetInput& in, int kv_head, int64_t reserved,
                            std::vector<Candidate>& candidates) {
    const std::vector<double>& scores = in.scores[static_cast<size_t>(kv_head)];
    const std::span<const Position> positions = in.call.cache.positions(in.call.layer, kv_head);
    const std::span<const Slot> order = in.call.order(kv_head);
    const auto first = static_cast<int64_t>(candidates.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      const Slot slot = order[static_cast<size_t>(in.region.begin) + i];
      candidates.push_back({.score = scores[i],
                            .position = positions[static_cast<size_t>(slot)],
                            .kv_head = kv_head});
    }
    const int64_t n = std::min(reserved, static_cast<int64_t>(scores.size()));
    const auto begin = candidates.begin() + first;
    std::nth_element(begin, begin + n, candidates.end(), Better);
    candidates.erase(begin, begin + n);
  }

  CompetingConfig c_;
};

}  // namespace

BudgeterPtr Competing(const CompetingConfig& config) {
  return std::make_shared<CompetingBudgeter>(config);
}

}  // namespace winnow::compression::budget
