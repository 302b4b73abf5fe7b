#include "tokenizer/string_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace winnow::tokenizer {
namespace {

std::vector<std::string_view> Views(const std::vector<std::string>& strings) {
  return {strings.begin(), strings.end()};
}

// 8 bytes each, all of which had the same 32-bit hash when the hash had no seed:
//   hash = ((8 * odd) ^ word) * odd;  hash ^= hash >> 29;  hash ^= hash >> 32
std::vector<std::string> CollidingStrings(size_t n) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  uint64_t inverse = kOdd;  // right in the last 3 bits; each round doubles their number
  for (int round = 0; round < 5; ++round) inverse *= 2 - kOdd * inverse;
  std::vector<std::string> strings(n, std::string(8, '\0'));
  for (uint64_t i = 0; i < n; ++i) {
    uint64_t hash = i << 32;
    hash ^= hash >> 32;
    hash ^= hash >> 29 ^ hash >> 58;
    const uint64_t word = (hash * inverse) ^ (8 * kOdd);
    std::memcpy(strings[i].data(), &word, sizeof(word));
  }
  return strings;
}

TEST(StringIndex, FindsEveryLengthAndNothingElse) {
  Rng rng(1);
  std::vector<std::string> strings;
  for (size_t length = 0; length < 300; ++length) {
    strings.emplace_back();
    for (size_t i = 0; i < length; ++i) strings.back() += static_cast<char>(rng.Below(256));
  }
  const std::vector<std::string_view> views = Views(strings);
  const StringIndex index(views);
  for (size_t i = 0; i < strings.size(); ++i) {
    EXPECT_EQ(index.Find(strings[i]), static_cast<int32_t>(i));
    EXPECT_EQ(index.Find(strings[i] + "x"), -1);
  }
  EXPECT_EQ(StringIndex().Find("a"), -1);
}

TEST(StringIndex, TheLastOfEqualStringsIsFound) {
  const std::vector<std::string_view> views = {"a", "b", "a", "c", "a"};
  const StringIndex index(views);
  EXPECT_EQ(index.Find("a"), 4);
  EXPECT_EQ(index.Find("b"), 1);
}

// Regression: each of these strings was compared with all before it, 60,000 took 1.5 s.
TEST(StringIndex, StringsMadeToCollideAreSpread) {
  const std::vector<std::string> strings = CollidingStrings(60000);
  const std::vector<std::string_view> views = Views(strings);
  const StringIndex index(views);
  EXPECT_LT(index.MaxProbes(), 500u);  // random strings: 40
  for (size_t i = 0; i < strings.size(); i += 1000) {
    EXPECT_EQ(index.Find(strings[i]), static_cast<int32_t>(i));
  }
}

// Whoever knows the seed can make strings collide, so each index has another one.
TEST(StringIndex, StringsThatCollideUnderASeedAreSpreadUnderOthers) {
  constexpr uint64_t kSeed = 7;
  constexpr size_t kStrings = 1000;  // in 2,048 slots
  std::vector<std::string> strings;
  for (uint64_t i = 0; strings.size() < kStrings; ++i) {
    const std::string text = std::to_string(i);
    if ((HashBytes(text, kSeed) & 2047) == 0) strings.push_back(text);
  }
  const std::vector<std::string_view> views = Views(strings);
  EXPECT_EQ(StringIndex(views, kSeed).MaxProbes(), kStrings);
  EXPECT_LT(StringIndex(views).MaxProbes(), kStrings / 4);
}

}  // namespace
}  // namespace winnow::tokenizer
