#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/string_index.h"

namespace winnow::tokenizer {

// Maps (left symbol, right symbol) to the merge. Open addressing and a random hash, as in
// StringIndex. Symbols are >= 0.
class PairTable {
 public:
  explicit PairTable(size_t n_pairs, uint64_t seed = RandomSeed(),
                     uint64_t multiplier = RandomSeed())
      : seed_(seed), multiplier_(multiplier | 1), slots_(std::bit_ceil(2 * n_pairs + 2)) {}

  // Ignores a pair that is already known: the first rank counts.
  void Add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[Bucket(PairKey(left, right))];
    if (slot.key == kFree) slot = {.key = PairKey(left, right), .merge = merge};
  }

  std::optional<Merge> Find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[Bucket(PairKey(left, right))];
    if (slot.key == kFree) return std::nullopt;
    return slot.merge;
  }

  // Slots that the slowest successful look-up visits. Cost: O(pairs).
  size_t MaxProbes() const {
    size_t max = 0;
    for (size_t at = 0; at < slots_.size(); ++at) {
      if (slots_[at].key == kFree) continue;
      max = std::max(max, ((at - Hash(slots_[at].key)) & (slots_.size() - 1)) + 1);
    }
    return max;
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };

  static uint64_t PairKey(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // The two halves of a product: the upper one depends on all bits of the key, and which keys
  // collide depends on the random multiplier.
  size_t Hash(uint64_t key) const {
    const auto product = static_cast<unsigned __int128>(key ^ seed_) * multiplier_;
    return static_cast<size_t>(product) ^ static_cast<size_t>(product >> 64);
  }
  size_t Bucket(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t at = Hash(key) & mask;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & mask;
    return at;
  }

  uint64_t seed_;
  uint64_t multiplier_;
  std::vector<Slot> slots_;
};

}  // namespace winnow::tokenizer
