#include "kernels/cpu/similarity/similarity.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/similarity/similarity_kernels.h"

namespace winnow::kernels::cpu {
namespace {

// One search with many rows. With ranks, it sorts `to` by rank, because ties go to the first.
void MatchManyByRank(const HostSimilarity& s, int64_t target, std::vector<float>& scratch,
                     ThreadPool& pool) {
  if (s.ranks.empty()) return MatchMany(s, target, scratch, pool);
  CheckRows(s.all_kinds[0], s.to);
  std::vector<int32_t> indices(s.to.size());
  std::iota(indices.begin(), indices.end(), 0);
  std::ranges::stable_sort(indices, {}, [&](int32_t index) {
    return s.ranks[static_cast<size_t>(s.to[static_cast<size_t>(index)])];
  });
  std::vector<int32_t> to(s.to.size());
  std::ranges::transform(indices, to.begin(),
                         [&](int32_t index) { return s.to[static_cast<size_t>(index)]; });
  HostSimilarity ordered = s;
  ordered.to = to;
  MatchMany(ordered, target, scratch, pool);
  for (int32_t& found : s.best_to) {
    if (found != Similarity::kNone) found = indices[static_cast<size_t>(found)];
  }
}

}  // namespace

void MostSimilar(std::span<const HostSimilarity> searches, int64_t target,
                 std::vector<float>& scratch, ThreadPool& pool) {
  for (const HostSimilarity& s : searches) {
    WINNOW_CHECK(!s.to.empty() && s.n_kinds >= 1 && s.n_kinds <= s.all_kinds.size());
    WINNOW_CHECK(s.best.size() == s.from.size() && s.best_to.size() == s.from.size());
  }
  MatchFew(searches, target, scratch, pool);
  for (const HostSimilarity& s : searches) {
    if (!HasFewRows(s)) MatchManyByRank(s, target, scratch, pool);
  }
}

}  // namespace winnow::kernels::cpu
