#include "kernels/cpu/similarity.h"

#include "base/check.h"
#include "kernels/cpu/similarity_kernels.h"

namespace winnow::kernels::cpu {

void MostSimilar(std::span<const HostSimilarity> searches, int64_t target,
                 std::vector<float>& scratch, ThreadPool& pool) {
  for (const HostSimilarity& s : searches) {
    WINNOW_CHECK(!s.to.empty() && s.n_kinds >= 1 && s.n_kinds <= s.all_kinds.size());
    WINNOW_CHECK(s.best.size() == s.from.size() && s.best_to.size() == s.from.size());
  }
  MatchFew(searches, target, scratch, pool);
  for (const HostSimilarity& s : searches) {
    if (!HasFewRows(s)) MatchMany(s, target, scratch, pool);
  }
}

}  // namespace winnow::kernels::cpu
