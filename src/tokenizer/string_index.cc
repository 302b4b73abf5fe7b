#include "tokenizer/string_index.h"

#include <bit>
#include <cstring>

namespace winnow::tokenizer {

uint64_t HashBytes(std::string_view bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = bytes.size() * kMultiplier;
  const char* data = bytes.data();
  size_t left = bytes.size();
  const auto mix = [&hash](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 29;
  };
  for (; left >= 8; left -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    mix(word);
  }
  if (left > 0) {
    uint64_t word = 0;
    std::memcpy(&word, data, left);
    mix(word);
  }
  return hash ^ (hash >> 32);
}

StringIndex::StringIndex(std::span<const std::string_view> strings)
    : strings_(strings), slots_(std::bit_ceil(2 * strings.size() + 2)) {
  const size_t mask = slots_.size() - 1;
  for (size_t place = 0; place < strings.size(); ++place) {
    const auto hash = static_cast<uint32_t>(HashBytes(strings[place]));
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
  const auto hash = static_cast<uint32_t>(HashBytes(text));
  for (size_t at = hash & mask; slots_[at].place >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && strings_[slots_[at].place] == text) return slots_[at].place;
  }
  return -1;
}

}  // namespace winnow::tokenizer
