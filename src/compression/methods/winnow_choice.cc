#include "compression/methods/winnow_choice.h"

#include <algorithm>

#include "compression/methods/winnow_curves.h"
#include "compression/numbers.h"

namespace winnow::compression::methods {

Shares ShareBudget(const LayerCall& call, int64_t n_rest, int64_t window) {
  const int64_t n_heads = int64_t{call.n_layers} * call.n_kv_heads();
  Shares shares;
  shares.n_rest = n_rest;
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    const int64_t n_added = at.layer <= call.layer ? call.n_new : 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      shares.n_held += at.n_slots(head) - n_added;
    }
  }
  const int64_t total = (call.budget - shares.n_rest) * n_heads;
  if (!call.replayed) shares.n_recent = std::min(window, call.n_new);
  shares.n_recent =
      std::max(shares.n_recent, std::min(call.n_protected, call.budget - shares.n_rest));
  const auto of_new =
      static_cast<int64_t>(static_cast<double>(total) * static_cast<double>(call.n_new) /
                           static_cast<double>(call.n_seen));
  const int64_t for_new = std::max(of_new, shares.n_recent * n_heads);
  shares.n_old = std::min(total - for_new, shares.n_held);
  shares.n_new = total - shares.n_old - shares.n_recent * n_heads;
  shares.floor = std::min(std::max<int64_t>(1, call.budget / 10), shares.n_new / n_heads);
  return shares;
}

HeadChoice ChooseEntries(int64_t n, int64_t n_new, const Shares& shares,
                         std::span<const float> scores) {
  HeadChoice choice = {.n = n, .keep = {}, .order = {}};
  const int64_t n_old = choice.n - n_new;
  choice.keep.resize(static_cast<size_t>(choice.n));
  const std::vector<double> wide(scores.begin(), scores.end());
  const auto best_of = [&](int64_t first, int64_t end) {
    std::vector<int32_t> ranks;
    for (int64_t rank = first; rank < end; ++rank) ranks.push_back(static_cast<int32_t>(rank));
    std::ranges::sort(ranks, BestFirst{wide});
    return ranks;
  };
  const std::vector<int32_t> old = best_of(0, n_old);
  const int64_t n_keep =
      shares.n_held == 0 ? 0 : n_old * shares.n_old / shares.n_held;  // rounded down, within it
  for (int64_t i = 0; i < n_keep; ++i) {
    choice.keep[static_cast<size_t>(old[static_cast<size_t>(i)])] = true;
  }
  const int64_t end = choice.n - shares.n_recent;
  for (int64_t rank = end; rank < choice.n; ++rank) choice.keep[static_cast<size_t>(rank)] = true;
  choice.order = best_of(n_old, end);
  return choice;
}

std::vector<int64_t> FillUniform(size_t n_heads, const Shares& shares) {
  return std::vector<int64_t>(n_heads, shares.n_new / static_cast<int64_t>(n_heads));
}

std::vector<int64_t> FillProfile(const ErrorProfile& profile, int64_t n, const Shares& shares) {
  std::vector<ErrorCurve> curves;
  for (int layer = 0; layer < profile.n_layers(); ++layer) {
    for (int head = 0; head < profile.n_kv_heads(); ++head) {
      curves.push_back(profile.CurveFor(layer, head, n));
    }
  }
  return FillCurves(curves, shares.floor, shares.n_new);
}

std::vector<int64_t> FillTopK(std::span<const HeadChoice> choices,
                              std::span<const std::vector<float>> scores, int64_t floor,
                              int64_t total) {
  std::vector<int64_t> sizes(choices.size());
  std::vector<Candidate> candidates;
  int64_t left = total;
  for (size_t i = 0; i < choices.size(); ++i) {
    sizes[i] = std::min(floor, std::ssize(choices[i].order));
    left -= sizes[i];
    for (size_t j = static_cast<size_t>(sizes[i]); j < choices[i].order.size(); ++j) {
      const int32_t rank = choices[i].order[j];
      candidates.push_back({.score = scores[i][static_cast<size_t>(rank)],
                            .position = rank,
                            .kv_head = static_cast<int>(i)});
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) {
    if (ScoreLess(b.score, a.score)) return true;
    return !ScoreLess(a.score, b.score) && a.position > b.position;
  });
  candidates.resize(std::min(candidates.size(), static_cast<size_t>(left)));
  for (const Candidate& candidate : candidates) ++sizes[static_cast<size_t>(candidate.kv_head)];
  return sizes;
}

}  // namespace winnow::compression::methods
