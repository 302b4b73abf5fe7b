#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/numbers.h"

namespace winnow::compression::budget {
namespace {

using Form = CompetingConfig::Form;

// Best first; among equal scores the newer, then that of the first head.
bool Better(const Candidate& a, const Candidate& b) {
  if (ScoreLess(a.score, b.score)) return false;
  if (ScoreLess(b.score, a.score)) return true;
  return a.position != b.position ? a.position > b.position : a.kv_head < b.kv_head;
}

class CompetingBudgeter final : public Budgeter {
 public:
  explicit CompetingBudgeter(const CompetingConfig& config) : c_(config) {}

  std::string_view name() const override { return "competing"; }
  bool reads_scores() const override { return true; }
  void Sizes(const BudgetInput& in, std::span<int64_t> out) const override {
    const int64_t mean = std::max<int64_t>(0, in.call.budget - in.n_protected);
    const int64_t reserved = CountFrom(c_.alpha * static_cast<double>(mean), mean);
    // A head without entries would have nothing to attend to.
    const int64_t at_least = in.n_protected > 0 ? 0 : std::min<int64_t>(1, mean);
    Compete(in, mean, std::max(at_least, c_.form == Form::kReserve ? reserved : 0), out);
    if (c_.form == Form::kBlend) Blend(in, reserved, out);
  }
  // One head may take its layer's whole budget.
  int64_t MaxSlots(int64_t, int64_t n, int64_t) const override { return n; }

 private:
  // Every head keeps its best `reserved` entries; the rest of the layer's mean * n_kv_heads goes to
  // the best of all heads.
  void Compete(const BudgetInput& in, int64_t mean, int64_t reserved,
               std::span<int64_t> out) const {
    // The entries that are not reserved.
    std::vector<Candidate>& candidates = in.call.scratch.candidates;
    candidates.clear();
    int64_t n_places = 0;
    for (size_t head = 0; head < out.size(); ++head) {
      AddCandidates(in, static_cast<int>(head), mean, reserved, candidates);
      out[head] = std::min(reserved, static_cast<int64_t>(in.scores[head].size()));
      n_places += mean - out[head];
    }
    n_places = std::min(n_places, static_cast<int64_t>(candidates.size()));
    std::nth_element(candidates.begin(), candidates.begin() + n_places, candidates.end(), Better);
    for (int64_t i = 0; i < n_places; ++i) {
      ++out[static_cast<size_t>(candidates[static_cast<size_t>(i)].kv_head)];
    }
  }

  // All entries of the region but the head's best `reserved`.
  void AddCandidates(const BudgetInput& in, int kv_head, int64_t mean, int64_t reserved,
                     std::vector<Candidate>& candidates) const {
    const std::vector<double>& scores = in.scores[static_cast<size_t>(kv_head)];
    const std::span<const Position> positions = in.call.cache.positions(in.call.layer, kv_head);
    const std::span<const Slot> order = in.call.order(kv_head);
    const double weight = c_.by_mass ? TopMass(scores, mean, in.call.scratch.numbers) : 1;
    const auto first = static_cast<int64_t>(candidates.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      const Slot slot = order[static_cast<size_t>(in.region.begin) + i];
      candidates.push_back({.score = weight * scores[i],
                            .position = positions[static_cast<size_t>(slot)],
                            .kv_head = kv_head});
    }
    const int64_t n = std::min(reserved, static_cast<int64_t>(scores.size()));
    const auto begin = candidates.begin() + first;
    std::nth_element(begin, begin + n, candidates.end(), Better);
    candidates.erase(begin, begin + n);
  }

  // The best n as a share of the sum, above 0; 1 if the scores do not define a share.
  static double TopMass(const std::vector<double>& scores, int64_t n, std::vector<double>& memory) {
    if (n >= static_cast<int64_t>(scores.size())) return 1;
    memory = scores;
    const auto best = memory.begin() + n;
    std::nth_element(memory.begin(), best, memory.end(),
                     [](double a, double b) { return ScoreLess(b, a); });
    const double part = std::accumulate(memory.begin(), best, 0.0);
    const double rest = std::accumulate(best, memory.end(), 0.0);
    const double share = Fraction(part, part + rest, 1);
    return share > 0 && share <= 1 ? share : 1;
  }

  // In: each head's entries among the best of all. Out: blended with `reserved`.
  void Blend(const BudgetInput& in, int64_t reserved, std::span<int64_t> out) const {
    const auto all_of = [&](size_t head) { return static_cast<int64_t>(in.scores[head].size()); };
    std::vector<double>& fractions = in.call.scratch.numbers;
    std::vector<int32_t>& by_fraction = in.call.scratch.indices;
    fractions.resize(out.size());
    by_fraction.resize(out.size());
    std::iota(by_fraction.begin(), by_fraction.end(), 0);

    int64_t left = std::accumulate(out.begin(), out.end(), int64_t{0});
    for (size_t head = 0; head < out.size(); ++head) {
      const double exact =
          (1 - c_.alpha) * static_cast<double>(out[head]) + static_cast<double>(reserved);
      out[head] = CountFrom(exact, all_of(head));
      fractions[head] = exact - std::floor(exact);
      left -= out[head];
    }
    // Not std::stable_sort, which allocates.
    std::sort(by_fraction.begin(), by_fraction.end(), [&](int32_t a, int32_t b) {
      const double left_fraction = fractions[static_cast<size_t>(a)];
      const double right_fraction = fractions[static_cast<size_t>(b)];
      if (ScoreLess(right_fraction, left_fraction)) return true;
      return !ScoreLess(left_fraction, right_fraction) && a < b;
    });
    for (bool any = true; left > 0 && any;) {
      any = false;
      for (const int32_t i : by_fraction) {
        const auto head = static_cast<size_t>(i);
        if (left == 0 || out[head] >= all_of(head)) continue;
        ++out[head];
        --left;
        any = true;
      }
    }
  }

  CompetingConfig c_;
};

}  // namespace

BudgeterPtr Competing(const CompetingConfig& config) {
  return std::make_shared<CompetingBudgeter>(config);
}

}  // namespace winnow::compression::budget
