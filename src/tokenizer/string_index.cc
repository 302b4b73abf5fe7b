#include "tokenizer/string_index.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace winnow::tokenizer {

uint64_t RandomSeed() {
  uint64_t seed = 0;
  // The system has randomness unless a sandbox forbids the call; the clock is then hard to guess.
  if (getentropy(&seed, sizeof(seed)) == 0) return seed;
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

uint64_t HashBytes(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

StringIndex::StringIndex(std::span<const std::string_view> strings, uint64_t seed)
    : seed_(seed), strings_(strings), slots_(std::bit_ceil(2 * strings.size() + 2)) {
  const size_t mask = slots_.size() - 1;
  for (size_t place = 0; place < strings.size(); ++place) {
    const uint32_t hash = Hash(strings[place]);
    size_t at = hash & mask;
    while (slots_[at].place >= 0 &&
           (slots_[at].hash != hash || strings_[slots_[at].place] != strings[place])) {
      at = (at + 1) & mask;
    }
    slots_[at] = {.hash = hash, .place = static_cast<int32_t>(place)};
  }
}

int32_t StringIndex::Find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  const uint32_t hash = Hash(text);
  for (size_t at = hash & mask; slots_[at].place >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && strings_[slots_[at].place] == text) return slots_[at].place;
  }
  return -1;
}

size_t StringIndex::MaxProbes() const {
  size_t max = 0;
  const size_t mask = slots_.size() - 1;
  for (size_t at = 0; at < slots_.size(); ++at) {
    if (slots_[at].place >= 0) max = std::max(max, ((at - slots_[at].hash) & mask) + 1);
  }
  return max;
}

}  // namespace winnow::tokenizer
