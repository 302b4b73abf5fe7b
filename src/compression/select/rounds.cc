#include <algorithm>
#include <utility>
#include <vector>

#include "compression/numbers.h"
#include "compression/select/blocks.h"
#include "compression/select/select.h"

namespace winnow::compression::select {
namespace {

// The blocks chosen so far. `memory` holds its buffers.
class Choice {
 public:
  Choice(std::span<const double> scores, std::vector<int32_t>& memory) : scores_(scores) {
    const size_t n = scores.size();
    memory.assign(3 * n, 0);
    chosen_ = std::span(memory).first(n);
    free_ = std::span(memory).subspan(n, n);
    nominees_ = std::span(memory).subspan(2 * n, n);
  }

  bool chosen(int64_t block) const { return chosen_[static_cast<size_t>(block)] != 0; }
  // The blocks of [begin, end) that are not chosen, best first; among equal scores the newer. Valid
  // until the next call.
  std::span<const int32_t> Free(int64_t begin, int64_t end) {
    size_t n = 0;
    for (int64_t block = begin; block < end; ++block) {
      if (!chosen(block)) free_[n++] = static_cast<int32_t>(block);
    }
    return Sorted(free_.first(n));
  }
  // Chooses the first n blocks, or all if there are fewer. Returns how many.
  int64_t Take(std::span<const int32_t> blocks, int64_t n) {
    n = std::min(n, static_cast<int64_t>(blocks.size()));
    for (const int32_t block : blocks.first(static_cast<size_t>(n))) {
      chosen_[static_cast<size_t>(block)] = 1;
    }
    return n;
  }

  void Nominate(int32_t block) { nominees_[n_nominees_++] = block; }
  // Returns the nominees, best first, and clears them.
  std::span<const int32_t> TakeNominees() {
    return Sorted(nominees_.first(std::exchange(n_nominees_, 0)));
  }

 private:
  std::span<const int32_t> Sorted(std::span<int32_t> blocks) const {
    std::sort(blocks.begin(), blocks.end(), BestFirst{scores_});
    return blocks;
  }

  std::span<const double> scores_;
  std::span<int32_t> chosen_;  // [block]
  std::span<int32_t> free_, nominees_;
  size_t n_nominees_ = 0;
};

class RoundsSelector final : public Selector {
 public:
  explicit RoundsSelector(const RoundsConfig& config) : c_(config) {}

  std::string_view name() const override { return "rounds"; }
  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const int64_t n_protected = in.call.n_slots(in.kv_head) - in.region.size();
    const int64_t size =
        c_.block > 0 ? c_.block : std::max<int64_t>(1, (in.n_keep + n_protected) / 32);
    const Blocks blocks = {.size = size, .n_entries = in.region.size()};
    std::vector<double>& means = in.call.scratch.numbers;
    blocks.Means(in.scores, means);

    Choice choice(means, in.call.scratch.indices);
    int64_t left = in.n_keep / size;
    for (size_t round = 0; round < c_.rounds.size(); ++round) {
      const auto n_rounds_left = static_cast<int64_t>(c_.rounds.size() - round);
      const int64_t share = (left + n_rounds_left - 1) / n_rounds_left;
      // More groups than blocks choose as one group per block does.
      const int64_t n_groups = std::min<int64_t>(c_.rounds[round], blocks.n());
      TakeFromGroups(blocks.n(), n_groups, share, choice);
      left -= share;
    }
    for (int64_t block = 0; block < blocks.n(); ++block) {
      if (choice.chosen(block)) continue;
      for (int64_t i = blocks.begin(block); i < blocks.end(block); ++i) {
        evicted.push_back(static_cast<int32_t>(in.region.begin + i));
      }
    }
  }

 private:
  // Chooses `share` blocks: the same number from every group, then the best of the groups'
  // nominees, then (if groups ran out of blocks) the best of all.
  static void TakeFromGroups(int64_t n_blocks, int64_t n_groups, int64_t share, Choice& choice) {
    int64_t missing = share;
    for (int64_t group = 0; group < n_groups; ++group) {
      const int64_t begin = group * n_blocks / n_groups;
      const int64_t end = (group + 1) * n_blocks / n_groups;
      const std::span<const int32_t> free = choice.Free(begin, end);
      const int64_t taken = choice.Take(free, share / n_groups);
      missing -= taken;
      if (taken < static_cast<int64_t>(free.size())) {
        choice.Nominate(free[static_cast<size_t>(taken)]);
      }
    }
    missing -= choice.Take(choice.TakeNominees(), share % n_groups);
    if (missing > 0) choice.Take(choice.Free(0, n_blocks), missing);
  }

  RoundsConfig c_;
};

}  // namespace

SelectorPtr Rounds(const RoundsConfig& config) { return std::make_shared<RoundsSelector>(config); }

}  // namespace winnow::compression::select
