#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::NoWeights;
using Positions = std::vector<Position>;

TEST(StridedTest, KeepsMultiplesOfAPowerOfTwoAndTheNewest) {
  Harness h(Make(methods::Strided(), "sinks=1,recent=4"), {.budget = 8});
  h.Prefill(32, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 28, 29, 30, 31}));
  h.Decode(NoWeights());  // token 28 leaves the newest four, and is not a multiple of 8
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 29, 30, 31, 32}));
}

TEST(StridedTest, TheStrideDoublesAsTheTextGrows) {
  Harness h(Make(methods::Strided(), "sinks=0,recent=0"), {.budget = 8});
  h.Prefill(32, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 4, 8, 12, 16, 20, 24, 28}));
  for (int i = 0; i < 32; ++i) h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 32, 40, 48, 56}));
}

// Of n tokens: the first `sinks`, the newest `recent`, and of those between them all multiples of
// the smallest power of two for which there is room; what is left is filled up with the newest odd
// multiples of half of it.
Positions ClosedForm(int64_t n, int64_t budget, int64_t sinks, int64_t recent) {
  Positions kept;
  const int64_t room = budget - sinks - recent, end = n - recent;
  const auto multiples = [&](int64_t of) {
    Positions found;
    for (int64_t p = sinks; p < end; ++p) {
      if (p % of == 0) found.push_back(static_cast<Position>(p));
    }
    return found;
  };
  int64_t stride = 1;
  while (std::ssize(multiples(stride)) > room) stride *= 2;
  kept = multiples(stride);
  if (stride > 1) {
    const Positions finer = multiples(stride / 2);
    for (auto p = finer.rbegin(); p != finer.rend() && std::ssize(kept) < room; ++p) {
      if (*p % stride != 0) kept.push_back(*p);
    }
  }
  for (int64_t p = 0; p < n; ++p) {
    if (p < sinks || p >= std::max(sinks, end)) kept.push_back(static_cast<Position>(p));
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// Whatever the attention and the calls in which the text comes.
TEST(StridedTest, AgreesWithTheClosedForm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const int n_kv_heads = 1 + draw(2), group = 1 + draw(3);
    const int64_t sinks = draw(6);
    int64_t recent = draw(9);
    const bool by_default = seed % 3 == 0;  // recent=0.5 includes the sinks
    const int64_t budget = (by_default ? sinks + 1 : sinks + recent + 1) + draw(40);
    if (by_default) recent = std::max<int64_t>(0, budget / 2 - sinks);
    const std::string parameters = "sinks=" + std::to_string(sinks) + ",recent=" +
                                   (by_default ? std::string("0.5") : std::to_string(recent));
    Harness h(Make(methods::Strided(), parameters), {.n_layers = 2,
                                                     .n_q_heads = n_kv_heads * group,
                                                     .n_kv_heads = n_kv_heads,
                                                     .budget = budget});
    for (int call = 0; call < 10; ++call) {
      const testing::Weights weights = testing::RandomWeights(seed + static_cast<uint64_t>(call));
      if (draw(3) == 0) {
        h.Decode(weights);
      } else {
        h.Prefill(1 + draw(60), weights);
      }
      const Positions expected = ClosedForm(h.n_seen(), budget, sinks, recent);
      for (int layer = 0; layer < 2; ++layer) {
        for (int head = 0; head < n_kv_heads; ++head) {
          ASSERT_EQ(h.Kept(layer, head), expected)
              << parameters << ", budget " << budget << ", " << h.n_seen() << " tokens";
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression
