#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace winnow::tokenizer {

// A seed for hashes of a file's strings. Random, so that nobody can write a file whose strings
// collide: a table would take quadratic time. Results never depend on it.
uint64_t RandomSeed();

// XXH3.
uint64_t HashBytes(std::string_view bytes, uint64_t seed);

// Maps strings to their indices in a list. Open addressing: a look-up usually touches one cache
// line, unlike in a node-based map. The list must outlive the index.
class StringIndex {
 public:
  StringIndex() = default;
  // If a string occurs several times, the last index is found, as in llama.cpp.
  explicit StringIndex(std::span<const std::string_view> strings, uint64_t seed = RandomSeed());

  // -1 if absent.
  int32_t Find(std::string_view text) const;

  // Slots that the slowest successful look-up visits. Cost: O(strings).
  size_t MaxProbes() const;

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t place = -1;
  };

  uint32_t Hash(std::string_view text) const {
    return static_cast<uint32_t>(HashBytes(text, seed_));
  }

  uint64_t seed_ = 0;
  std::span<const std::string_view> strings_;
  std::vector<Slot> slots_;  // size is a power of two; at most half full
};

}  // namespace winnow::tokenizer
