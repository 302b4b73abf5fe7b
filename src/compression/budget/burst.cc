#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/numbers.h"

namespace winnow::compression::budget {
namespace {

class BurstBudgeter final : public Budgeter {
 public:
  explicit BurstBudgeter(const BurstConfig& config) : c_(config) {}

  std::string_view name() const override { return "burst"; }
  void Sizes(const BudgetInput& input, std::span<int64_t> out) const override {
    const int64_t budget = input.call.budget;
    const int64_t burst = std::max<int64_t>(1, CountFrom(c_.share * static_cast<double>(budget)));
    for (size_t head = 0; head < out.size(); ++head) {
      const int64_t n_slots = input.call.n_slots(static_cast<int>(head));
      const int64_t excess = std::max<int64_t>(0, n_slots - budget);
      const int64_t n_bursts = (excess + burst - 1) / burst;
      out[head] = std::max<int64_t>(0, n_slots - n_bursts * burst - input.n_protected);
    }
  }

 private:
  BurstConfig c_;
};

}  // namespace

BudgeterPtr Burst(const BurstConfig& config) { return std::make_shared<BurstBudgeter>(config); }

}  // namespace winnow::compression::budget
