#include "compression/taps.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression {
namespace {

using Reduce = kernels::TapSpec::Reduce;

bool FollowsFromHeads(const kernels::TapSpec& spec) {
  return spec.reduce == Reduce::kNone ||
         (!spec.square_sums && !spec.column_max &&
          !((spec.column_sums || spec.last_sums > 1) && spec.reduce == Reduce::kMax));
}

template <class Number>
void ReduceGroups(Reduce how, int group, const std::vector<std::vector<Number>>& heads,
                  std::vector<std::vector<Number>>& out) {
  out.resize(heads.size() / static_cast<size_t>(group));
  for (size_t kv_head = 0; kv_head < out.size(); ++kv_head) {
    const std::vector<Number>* first = &heads[kv_head * static_cast<size_t>(group)];
    std::vector<Number>& sum = out[kv_head];
    sum.assign(first->begin(), first->end());
    for (int head = 1; head < group; ++head) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = how == Reduce::kMax ? std::max(sum[i], first[head][i]) : sum[i] + first[head][i];
      }
    }
    if (how == Reduce::kMean) {
      for (Number& number : sum) number /= static_cast<Number>(group);
    }
  }
}

}  // namespace

kernels::TapSpec TapsOfCall(const Needs& needs, Phase phase, int64_t n_seen) {
  if (phase == Phase::kDecode) return needs.decode;
  kernels::TapSpec taps = needs.prefill;
  if (needs.last_sums_share > 0) {
    const int64_t n = CountFrom(needs.last_sums_share * static_cast<double>(n_seen), n_seen);
    taps.last_sums = static_cast<int>(std::max<int64_t>(1, n));
  }
  return taps;
}

bool CanServe(const kernels::TapSpec& a, const kernels::TapSpec& b) {
  if (!a.any() || !b.any()) return true;
  if (a.last_sums > 0 && b.last_sums > 0 && a.last_sums != b.last_sums) return false;
  return a.reduce == b.reduce || (FollowsFromHeads(a) && FollowsFromHeads(b));
}

kernels::TapSpec Join(const kernels::TapSpec& a, const kernels::TapSpec& b) {
  WINNOW_CHECK(CanServe(a, b));
  if (!a.any()) return b;
  if (!b.any()) return a;
  return {.last_rows = std::max(a.last_rows, b.last_rows),
          .last_sums = std::max(a.last_sums, b.last_sums),
          .column_sums = a.column_sums || b.column_sums,
          .square_sums = a.square_sums || b.square_sums,
          .column_max = a.column_max || b.column_max,
          .reduce = a.reduce == b.reduce ? a.reduce : Reduce::kNone};
}

const kernels::Taps& ReduceTapsTo(const kernels::TapSpec& wanted, const kernels::TapSpec& joined,
                                  const kernels::Taps& found, int group, kernels::Taps& reduced) {
  if (!wanted.any() || wanted.reduce == joined.reduce) return found;
  WINNOW_CHECK(joined.reduce == Reduce::kNone);
  reduced.n_last_rows = found.n_last_rows;
  reduced.n_last_sums = found.n_last_sums;
  ReduceGroups(wanted.reduce, group, found.last_rows, reduced.last_rows);
  ReduceGroups(wanted.reduce, group, found.last_sums, reduced.last_sums);
  ReduceGroups(wanted.reduce, group, found.column_sums, reduced.column_sums);
  reduced.square_sums.clear();
  reduced.column_max.clear();
  return reduced;
}

}  // namespace winnow::compression
