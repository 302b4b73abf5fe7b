#include <algorithm>
#include <numeric>
#include <vector>

#include "compression/numbers.h"
#include "compression/select/select.h"
#include "compression/select/tree.h"

namespace winnow::compression::select {
namespace {

// Head numbers
constexpr int kPointer = 0;   // the pair of blocks for the next eviction
constexpr int kAppended = 1;  // tokens before this position are in the list of blocks, or evicted
constexpr int kDropped = 2;   // if the newest block was evicted: its end in the text; otherwise 0

class TreeBlocksSelector final : public Selector {
 public:
  explicit TreeBlocksSelector(const TreeBlocksConfig& config) : c_(config) {}

  std::string_view name() const override { return "tree_blocks"; }
  cache::StateShape state() const override { return {.n_head_numbers = 3}; }

  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const Text text(in, BlockUnder(in.call.budget, in.region.begin, c_.block));
    double& pointer = in.call.head_number(in.kv_head, kPointer);
    double& appended = in.call.head_number(in.kv_head, kAppended);
    double& gone = in.call.head_number(in.kv_head, kDropped);

    std::vector<int32_t>& starts = in.call.scratch.ranks;
    text.Cut(starts);
    const auto n_blocks = static_cast<int32_t>(starts.size()) - 1;
    std::vector<double>& means = in.call.scratch.numbers;
    means.clear();
    for (int32_t block = 0; block < n_blocks; ++block) {
      const auto scores = in.scores.subspan(Start(starts, block), Size(starts, block));
      means.push_back(std::accumulate(scores.begin(), scores.end(), 0.0) /
                      static_cast<double>(scores.size()));
    }

    bool newest_went = false;
    const auto evict = [&](int32_t block) {
      for (size_t i = 0; i < Size(starts, block); ++i) {
        evicted.push_back(
            static_cast<int32_t>(in.region.begin + static_cast<int64_t>(Start(starts, block) + i)));
      }
      newest_went |= block == n_blocks - 1;
    };
    Tree tree({.pointer = CountFrom(pointer), .cycle = c_.cycle, .select_left = c_.select_left},
              in.call.scratch.indices);
    const int64_t n_blocks_kept = in.n_keep / text.block_size();
    for (int32_t block = 0; block < n_blocks; ++block) {
      const int64_t first = starts[static_cast<size_t>(block)];
      const int64_t last = starts[static_cast<size_t>(block) + 1] - 1;
      const bool arrives = static_cast<double>(text.position(first)) >= appended;
      // Tokens that left the window after their block was evicted. Under another budget blocks have
      // other borders: a block that extends beyond the evicted one stays in the list.
      if (arrives && static_cast<double>(text.position(last)) < gone) {
        evict(block);
        continue;
      }
      tree.Append(block);
      if (arrives && tree.size() > n_blocks_kept) evict(tree.Evict(means));
    }
    // After a stretch of decoding blocks have fewer entries, and there are more blocks.
    while (in.region.size() - std::ssize(evicted) > in.n_keep) evict(tree.Evict(means));
    std::sort(evicted.begin(), evicted.end());

    const int64_t newest = in.region.size() - 1;
    pointer = static_cast<double>(tree.pointer());
    appended = static_cast<double>(text.position(newest) + 1);
    gone = newest_went ? static_cast<double>(text.block_end(newest)) : 0;
  }

 private:
  // The positions of the region's entries in the text, counted from its first.
  class Text {
   public:
    Text(const SelectInput& in, int64_t block_size)
        : order_(in.call.order(in.kv_head)
                     .subspan(static_cast<size_t>(in.region.begin),
                              static_cast<size_t>(in.region.size()))),
          positions_(in.call.cache.positions(in.call.layer, in.kv_head)),
          n_sinks_(in.region.begin),
          block_size_(block_size) {}

    int64_t block_size() const { return block_size_; }
    int64_t position(int64_t i) const {
      return positions_[static_cast<size_t>(order_[static_cast<size_t>(i)])];
    }
    // By position in the text, so that block borders never move.
    int64_t block(int64_t i) const { return (position(i) - n_sinks_) / block_size_; }
    // The position after the end of the entry's block.
    int64_t block_end(int64_t i) const { return n_sinks_ + (block(i) + 1) * block_size_; }
    // The first entry of every block that has entries, then the number of entries.
    void Cut(std::vector<int32_t>& starts) const {
      starts.clear();
      for (int64_t i = 0; i < std::ssize(order_); ++i) {
        if (i == 0 || block(i) != block(i - 1)) starts.push_back(static_cast<int32_t>(i));
      }
      starts.push_back(static_cast<int32_t>(order_.size()));
    }

   private:
    std::span<const Slot> order_;
    std::span<const Position> positions_;
    int64_t n_sinks_;
    int64_t block_size_;
  };

  static size_t Start(const std::vector<int32_t>& starts, int32_t block) {
    return static_cast<size_t>(starts[static_cast<size_t>(block)]);
  }
  static size_t Size(const std::vector<int32_t>& starts, int32_t block) {
    return Start(starts, block + 1) - Start(starts, block);
  }

  TreeBlocksConfig c_;
};

}  // namespace

SelectorPtr TreeBlocks(const TreeBlocksConfig& config) {
  return std::make_shared<TreeBlocksSelector>(config);
}

}  // namespace winnow::compression::select
