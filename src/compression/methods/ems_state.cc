#include "compression/methods/ems_state.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compression/numbers.h"

namespace winnow::compression::methods::ems {
namespace {

// Adds the weights of the call's queries first..last-1 to sums [slot].
void AddRows(const LayerCall& call, int head, int64_t first, int64_t last, std::span<double> sums) {
  const int64_t n_not_tapped = call.n_new - call.taps->n_last_rows;
  for (int64_t query = first; query < last; ++query) {
    const std::span<const float> row = call.last_row(head, static_cast<int>(query - n_not_tapped));
    for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += row[slot];
  }
}

// The same in halves, rounded once.
void AddRows(const LayerCall& call, int head, int64_t first, int64_t last, std::span<Half> sums) {
  std::vector<double> added(sums.size());
  AddRows(call, head, first, last, added);
  for (size_t slot = 0; slot < sums.size(); ++slot) {
    sums[slot] = static_cast<float>(sums[slot] + added[slot]);
  }
}

void EndWindow(const kernels::AttentionSums& sums) {
  std::ranges::copy(sums.current, sums.past.begin());
  std::ranges::fill(sums.current, Half());
}

}  // namespace

int64_t Members(const LayerCall& call, int head) {
  // Truncate may have removed the newest entries.
  return CountFrom(call.head_number(head, kMembers), call.n_slots(head));
}

void SetMembers(const LayerCall& call, int head, int64_t n) {
  call.head_number(head, kMembers) = static_cast<double>(n);
}

void CountMembers(const LayerCall& call, int64_t n_newest) {
  int64_t n_local = n_newest + call.n_new;
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const std::span<const Slot> order = call.order(head);
    int64_t n_own = call.n_slots(head) - Members(call, head);
    while (n_own < std::min(n_local, call.n_slots(head)) &&
           IsKeyItself(call, head, order[static_cast<size_t>(call.n_slots(head) - n_own - 1)])) {
      ++n_own;
    }
    n_local = std::min(n_local, n_own);
  }
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const int64_t n_members = call.n_slots(head) - n_local;
    if (Members(call, head) > n_members) SetMembers(call, head, n_members);
  }
}

float Factor(double length) {
  constexpr double kMaxHalf = 65504;
  Half factor = static_cast<float>(std::min(length, kMaxHalf));
  if (factor == 1) ++factor.bits;
  return factor;
}

double KeyLength(const LayerCall& call, int head, Slot slot, std::span<float> room) {
  const auto at = static_cast<size_t>(slot);
  if (!IsKeyItself(call, head, slot)) return call.cache.factors(call.layer, head)[at];
  const kernels::HeadRows keys = call.cache.keys(call.layer, head);
  const Slot row = call.cache.rows(call.layer, head)[at];
  call.backend.ReadRows(keys, std::span(&row, 1), room);
  double squares = 0;
  for (const float x : room) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}

Windows Advance(const LayerCall& call, int length, bool prompt) {
  double& counter = call.layer_number(kCounter);
  const int64_t n_queries = CountFrom(counter) + call.n_new;
  const Windows windows = {.prompt = prompt,
                           .length = length,
                           .n_complete = n_queries / length,
                           .n_current = prompt ? 0 : n_queries % length};
  counter = static_cast<double>(windows.n_current);
  return windows;
}

kernels::AttentionSums Sums(const LayerCall& call, int head) {
  return {.total = call.column(head, kGlobal),
          .past = call.half_column(head, kPast),
          .current = call.half_column(head, kCurrent)};
}

kernels::AttentionTotals Totals(const kernels::AttentionSums& sums) {
  kernels::AttentionTotals totals;
  for (size_t slot = 0; slot < sums.total.size(); ++slot) {
    totals.total += sums.total[slot];
    totals.window += Local(sums, static_cast<Slot>(slot));
  }
  return totals;
}

kernels::AttentionTotals Observe(const LayerCall& call, const Windows& windows, int head) {
  const kernels::AttentionSums sums = Sums(call, head);
  if (call.n_new == 1) {
    const kernels::AttentionTotals totals = call.backend.AddAttention(sums, call.last_row(head, 0));
    if (windows.n_complete == 0) return totals;
    EndWindow(sums);
    return Totals(sums);
  }
  const std::vector<double>& columns = call.taps->column_sums[static_cast<size_t>(head)];
  for (size_t slot = 0; slot < columns.size(); ++slot) sums.total[slot] += columns[slot];
  const int64_t length = windows.length;
  if (windows.prompt) {
    std::ranges::copy(PromptLocal(call, windows.length, head), sums.past.begin());
  } else if (windows.n_complete == 0) {
    AddRows(call, head, 0, call.n_new, sums.current);
  } else {
    const int64_t end = call.n_new - windows.n_current;
    if (windows.n_complete > 1) std::ranges::fill(sums.current, Half());
    AddRows(call, head, std::max<int64_t>(0, end - length), end, sums.current);
    EndWindow(sums);
    AddRows(call, head, end, call.n_new, sums.current);
  }
  return Totals(sums);
}

std::vector<double> PromptLocal(const LayerCall& call, int window, int head) {
  std::vector<double> local(static_cast<size_t>(call.n_slots(head)));
  AddRows(call, head, std::max<int64_t>(0, call.n_new - window), call.n_new, local);
  return local;
}

Factors FactorsFrom(Attention attention, const kernels::AttentionTotals& totals) {
  switch (attention) {
    case Attention::kGlobalOnly:
      return {.global = 1, .local = 0};
    case Attention::kLocalOnly:
      return {.global = 0, .local = 1};
    case Attention::kBoth:
      break;
  }
  return {.global = Fraction(totals.window, totals.total, 0), .local = 1};
}

std::vector<double> PromptScores(const LayerCall& call, int head, Attention attention,
                                 std::span<const double> local) {
  const std::span<const double> global = Sums(call, head).total;
  const Factors factors =
      FactorsFrom(attention, {.total = std::accumulate(global.begin(), global.end(), 0.0),
                              .window = std::accumulate(local.begin(), local.end(), 0.0)});
  std::vector<double> scores;
  for (const Slot slot : call.order(head)) {
    const auto at = static_cast<size_t>(slot);
    scores.push_back(std::max(factors.global * global[at], factors.local * local[at]));
  }
  return scores;
}

}  // namespace winnow::compression::methods::ems
