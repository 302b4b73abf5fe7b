#include "compression/method.h"

#include <algorithm>

namespace winnow::compression {
namespace {

// A token has at least one byte. SentencePiece writes a space as three bytes, and adds one before
// the text.
int64_t MaxTextTokens(const std::string& text) {
  constexpr int64_t kSpaceBytes = 3;
  const int64_t n_spaces = std::ranges::count(text, ' ');
  return static_cast<int64_t>(text.size()) + (kSpaceBytes - 1) * n_spaces + kSpaceBytes;
}

// With a replay, the last rows of the prompt are only a fallback for when it does not fit into
// memory.
bool ReadsLastRows(const Needs& needs) {
  return needs.prompt_rows.which == attention::RowSpec::Which::kLast && !needs.replay.any();
}

}  // namespace

int64_t ReplaySpec::MaxTokens(int64_t n) const {
  if (!any()) return 0;
  return std::min(n, chunk) + n_repeated + std::max(MaxTextTokens(text), MaxTextTokens(next_text));
}

Plan& PlanList::Add(int layer, int n_kv_heads) {
  if (n_plans_ == plans_.size()) plans_.emplace_back();
  Plan& plan = plans_[n_plans_++];
  plan.layer = layer;
  plan.heads.resize(static_cast<size_t>(n_kv_heads));
  for (cache::HeadPlan& head : plan.heads) head.Clear();
  return plan;
}

bool Method::query_dependent() const {
  const Needs all = needs();
  return all.prefill.any() || all.decode.any() || all.last_sums_share > 0 || ReadsLastRows(all);
}

bool Method::needs_question() const {
  const Needs all = needs();
  return traits().decisions.Evicts(Phase::kPrefill) &&
         (all.prefill.last_rows > 0 || all.prefill.last_sums > 0 || ReadsLastRows(all));
}

int64_t Method::MaxSlots(int64_t budget, int64_t n) const {
  return traits().budget.needed ? std::min(budget, n) : n;
}

int64_t Method::TotalSlots(int64_t budget, int64_t n, int n_layers) const {
  return MaxSlots(budget, n) * n_layers;
}

int64_t Method::LayerSlots(int, int n_layers, int64_t budget, int64_t n) const {
  return std::min(MaxSlots(budget, n), TotalSlots(budget, n, n_layers));
}

Method::Sizes Method::DecodeSizes(int64_t budget, int64_t, int64_t n, int n_layers) const {
  Sizes sizes = {.total_slots = TotalSlots(budget, n, n_layers),
                 .total_rows = TotalRows(budget, n, n_layers)};
  for (int layer = 0; layer < n_layers; ++layer) {
    sizes.layer_slots = std::max(sizes.layer_slots, LayerSlots(layer, n_layers, budget, n));
    sizes.layer_rows = std::max(sizes.layer_rows, LayerRows(layer, n_layers, budget, n));
  }
  return sizes;
}

}  // namespace winnow::compression
