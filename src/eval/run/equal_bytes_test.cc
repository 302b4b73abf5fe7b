#include "eval/run/equal_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace winnow::eval {
namespace {

constexpr double kBytesPerSize = 1000;

struct Found {
  int64_t size = 0;
  int n_tried = 0;
};

// Runs a search over caches that take bytes(size) at each size.
Found Search(const SizeSearch::Limits& limits, const std::function<double(int64_t)>& bytes) {
  SizeSearch search(limits);
  Found found;
  while (const std::optional<int64_t> size = search.next()) {
    EXPECT_GE(*size, limits.smallest);
    EXPECT_LE(*size, limits.largest);
    search.Add(bytes(*size));
    ++found.n_tried;
  }
  found.size = search.found();
  return found;
}

double InProportion(int64_t size) { return kBytesPerSize * static_cast<double>(size); }

TEST(SizeSearch, TakesOneTrialWhereEveryHeadKeepsTheSize) {
  for (double bytes = 1000; bytes <= 400'000; bytes += 777) {
    const Found found =
        Search({.smallest = 1, .largest = 1000, .bytes = bytes, .bytes_per_size = kBytesPerSize},
               InProportion);
    EXPECT_EQ(found.size, static_cast<int64_t>(bytes / kBytesPerSize));
    EXPECT_EQ(found.n_tried, 1);
  }
}

TEST(SizeSearch, FewTrialsWhereBytesAreOtherThanOfTheSize) {
  const auto twice = [](int64_t size) { return 2 * InProportion(size); };
  const auto half = [](int64_t size) { return InProportion(size) / 2; };
  const auto with_more = [](int64_t size) { return 20'000 + InProportion(size); };
  // One more entry often adds no bytes, and sometimes many.
  const auto in_steps = [](int64_t size) { return InProportion(8 * ((size + 7) / 8)); };
  struct Case {
    std::function<double(int64_t)> bytes;
    int max_trials;
  };
  for (const auto& [bytes, max_trials] :
       {Case{twice, 3}, Case{half, 4}, Case{with_more, 6}, Case{in_steps, 12}}) {
    for (double allowed = 50'000; allowed <= 400'000; allowed += 7777) {
      const Found found = Search(
          {.smallest = 1, .largest = 1000, .bytes = allowed, .bytes_per_size = kBytesPerSize},
          bytes);
      EXPECT_LE(bytes(found.size), allowed);
      const bool close = bytes(found.size) >= 0.99 * allowed;
      const bool next_exceeds = bytes(found.size) + kBytesPerSize > allowed;
      EXPECT_TRUE(close || next_exceeds || bytes(found.size + 1) > allowed)
          << found.size << " of " << allowed;
      EXPECT_LE(found.n_tried, max_trials);
    }
  }
}

TEST(SizeSearch, StaysWithinWhatCanBeTried) {
  const Found smallest =
      Search({.smallest = 64, .largest = 1000, .bytes = 5000, .bytes_per_size = kBytesPerSize},
             InProportion);
  EXPECT_EQ(smallest.size, 64);  // although it takes more than allowed
  const Found largest =
      Search({.smallest = 64, .largest = 1000, .bytes = 5e6, .bytes_per_size = kBytesPerSize},
             InProportion);
  EXPECT_EQ(largest.size, 1000);
  const Found only = Search(
      {.smallest = 64, .largest = 64, .bytes = 5e6, .bytes_per_size = kBytesPerSize}, InProportion);
  EXPECT_EQ(only.size, 64);
}

// Bytes that do not grow with the size must not keep the search going forever.
TEST(SizeSearch, EndsWhereTheSizeSaysNothing) {
  for (const double bytes : {3000.0, 300'000.0}) {
    const Found found = Search(
        {.smallest = 1, .largest = 100'000, .bytes = 50'000, .bytes_per_size = kBytesPerSize},
        [bytes](int64_t) { return bytes; });
    EXPECT_LE(found.n_tried, 12);
    if (bytes > 50'000) {
      EXPECT_EQ(found.size, 1);
    } else {
      EXPECT_GT(found.size, 1000);
    }
  }
}

}  // namespace
}  // namespace winnow::eval
