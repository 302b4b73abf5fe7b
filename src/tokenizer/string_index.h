#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace winnow::tokenizer {

uint64_t HashBytes(std::string_view bytes);

// Strings -> their places in a list. Open addressing: one cache line per look-up in the common
// case, which a node-based map does not give. The list must outlive the index.
class StringIndex {
 public:
  StringIndex() = default;
  // Where a string occurs more than once, the last place is found (as the reference engine does).
  explicit StringIndex(std::span<const std::string_view> strings);

  // -1 if absent.
  int32_t Find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t place = -1;
  };
  std::span<const std::string_view> strings_;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace winnow::tokenizer
