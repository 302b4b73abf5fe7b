#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace winnow::tokenizer {

uint64_t HashBytes(std::string_view bytes);

// Maps strings to their indices in a list. Open addressing: a look-up usually touches one cache
// line, unlike in a node-based map. The list must outlive the index.
class StringIndex {
 public:
  StringIndex() = default;
  // If a string occurs several times, the last index is found, as in llama.cpp.
  explicit StringIndex(std::span<const std::string_view> strings);

  // -1 if absent.
  int32_t Find(std::string_view text) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t place = -1;
  };
  std::span<const std::string_view> strings_;
  std::vector<Slot> slots_;  // size is a power of two; at most half full
};

}  // namespace winnow::tokenizer
