#include "compression/methods/ems_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace winnow::compression::methods::ems {
namespace {

// The length of a zero key: not the mark of a local token, and 0 as a factor.
constexpr double kNoLength = std::numeric_limits<double>::min();

// Adds the weights of the call's queries first..last-1.
void AddRows(const LayerCall& call, int head, int64_t first, int64_t last, std::span<double> sums) {
  const int64_t n_not_tapped = call.n_new - call.taps.n_last_rows;
  for (int64_t query = first; query < last; ++query) {
    const std::span<const float> row = call.last_row(head, static_cast<int>(query - n_not_tapped));
    for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += row[slot];
  }
}

void AddGlobal(const LayerCall& call, int head) {
  const std::span<double> global = call.column(head, kGlobal);
  if (call.taps.column_sums.empty()) {
    AddRows(call, head, 0, 1, global);
    return;
  }
  const std::vector<double>& sums = call.taps.column_sums[static_cast<size_t>(head)];
  for (size_t slot = 0; slot < global.size(); ++slot) global[slot] += sums[slot];
}

}  // namespace

int64_t Members(const LayerCall& call, int head) {
  const std::span<const Slot> order = call.order(head);
  const std::span<const double> norm = call.column(head, kNorm);
  auto n = static_cast<int64_t>(order.size());
  while (n > 0 && norm[static_cast<size_t>(order[static_cast<size_t>(n - 1)])] == 0) --n;
  return n;
}

bool HasReady(const LayerCall& call, int head, int window) {
  const std::span<const Slot> order = call.order(head);
  const auto n_window = static_cast<size_t>(window);
  if (order.size() <= n_window) return false;
  const Slot oldest = order[order.size() - n_window - 1];
  return call.column(head, kNorm)[static_cast<size_t>(oldest)] == 0;
}

void Found(const LayerCall& call, int head, std::span<const Slot> slots) {
  const kernels::HeadRows keys = call.cache.keys(call.layer, head);
  const std::span<const Slot> rows = call.cache.rows(call.layer, head);
  const std::span<double> norm = call.column(head, kNorm);
  std::vector<float>& key = call.scratch.floats;
  key.resize(static_cast<size_t>(keys.dim));
  for (const Slot slot : slots) {
    call.backend.ReadRows(keys, std::span(&rows[static_cast<size_t>(slot)], 1), key);
    double squares = 0;
    for (const float x : key) squares += static_cast<double>(x) * x;
    norm[static_cast<size_t>(slot)] = std::max(kNoLength, std::sqrt(squares));
  }
}

double ToDirection(const LayerCall& call, int head, Slot slot) {
  const double factor = call.cache.factors(call.layer, head)[static_cast<size_t>(slot)];
  const double norm = call.column(head, kNorm)[static_cast<size_t>(slot)];
  if (factor == 0) return 1;
  return norm == kNoLength ? 0 : factor / norm;
}

Windows Advance(const LayerCall& call, int length, bool prompt) {
  double& counter = call.layer_number(kCounter);
  const int64_t n_queries = static_cast<int64_t>(counter) + call.n_new;
  const Windows windows = {.prompt = prompt,
                           .length = length,
                           .n_complete = n_queries / length,
                           .n_current = prompt ? 0 : n_queries % length};
  counter = static_cast<double>(windows.n_current);
  return windows;
}

void Observe(const LayerCall& call, const Windows& windows, int head) {
  const int64_t length = windows.length;
  AddGlobal(call, head);
  const std::span<double> past = call.column(head, kPast);
  const std::span<double> current = call.column(head, kCurrent);
  if (windows.prompt) {
    AddRows(call, head, std::max<int64_t>(0, call.n_new - length), call.n_new, past);
    return;
  }
  if (windows.n_complete == 0) {
    AddRows(call, head, 0, call.n_new, current);
    return;
  }
  const int64_t end = call.n_new - windows.n_current;
  if (windows.n_complete > 1) std::ranges::fill(current, 0.0);
  AddRows(call, head, std::max<int64_t>(0, end - length), end, current);
  std::ranges::copy(current, past.begin());
  std::ranges::fill(current, 0.0);
  AddRows(call, head, end, call.n_new, current);
}

Scores::Scores(const LayerCall& call, int head, Attention attention)
    : global(call.column(head, kGlobal)), local(call, head) {
  if (attention == Attention::kOfLate) return;
  if (attention == Attention::kInAll) {
    f = 1;
    l = 0;
    return;
  }
  double local_sum = 0;
  double global_sum = 0;
  for (size_t slot = 0; slot < global.size(); ++slot) {
    local_sum += local[static_cast<Slot>(slot)];
    global_sum += global[slot];
  }
  if (global_sum > 0) f = local_sum / global_sum;
}

}  // namespace winnow::compression::methods::ems
