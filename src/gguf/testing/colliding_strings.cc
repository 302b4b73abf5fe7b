#include "gguf/testing/colliding_strings.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>

#include "base/rng.h"

namespace winnow::gguf::testing {
namespace {

// libstdc++ hashes strings with MurmurHash64A and this seed. For each word of 8 bytes:
//   hash = (hash ^ Mix(word)) * kFactor
constexpr uint64_t kSeed = 0xC70F6907u;
constexpr uint64_t kFactor = 0xC6A4A7935BD1E995u;

constexpr uint64_t InverseFactor() {
  uint64_t inverse = kFactor;  // right in the last 3 bits; each round doubles their number
  for (int round = 0; round < 5; ++round) inverse *= 2 - kFactor * inverse;
  return inverse;
}
constexpr uint64_t kInverse = InverseFactor();
static_assert(kFactor * kInverse == 1);

uint64_t Mix(uint64_t word) {
  word *= kFactor;
  return (word ^ word >> 47) * kFactor;
}

uint64_t Unmix(uint64_t mixed) {
  mixed *= kInverse;
  return (mixed ^ mixed >> 47) * kInverse;
}

bool IsPlain(uint64_t word) {
  for (int i = 0; i < 8; ++i, word >>= 8) {
    if ((word & 0xFF) <= ' ' || (word & 0xFF) > '~') return false;
  }
  return true;
}

// Eight letters that spell the number.
uint64_t Letters(uint64_t number) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i, number >>= 4) word = word << 8 | ('a' + (number & 15));
  return word;
}

std::string Joined(uint64_t first, uint64_t second) {
  std::string text(16, '\0');
  std::memcpy(text.data(), &first, 8);
  std::memcpy(text.data() + 8, &second, 8);
  return text;
}

}  // namespace

std::vector<std::string> CollidingStrings(size_t n) {
  std::vector<std::string> strings;
  for (uint64_t number = 0; strings.size() < n; ++number) {
    const uint64_t first = Letters(number);
    const uint64_t between = ((kSeed ^ 16 * kFactor) ^ Mix(first)) * kFactor;
    const uint64_t second = Unmix(between);  // hash ^ Mix(second) is 0
    if (IsPlain(second)) strings.push_back(Joined(first, second));
  }
  return strings;
}

std::vector<std::string> OrdinaryStrings(size_t n) {
  Rng rng(1);
  std::vector<std::string> strings;
  for (uint64_t i = 0; i < n; ++i) strings.push_back(Joined(Letters(rng.Next()), Letters(i)));
  return strings;
}

double ProcessorSeconds(const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 3; ++run) {
    const std::clock_t start = std::clock();
    work();
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

}  // namespace winnow::gguf::testing
