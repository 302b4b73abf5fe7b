#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::NoWeights;
using Positions = std::vector<Position>;

TEST(KNormTest, KeepsSmallKeys) {
  Harness h(Make(methods::KNorm()), {.budget = 3});
  h.SetKeys([](int, int, Position position) {
    const std::vector<float> norms = {3, 1, 2, 5, 1, 4};
    return std::vector<float>{0.6f * norms[static_cast<size_t>(position)],
                              -0.8f * norms[static_cast<size_t>(position)]};
  });
  h.Prefill(6, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{1, 2, 4}));
}

// A prompt with more keys than one read takes, then a stream, against a plain list.
TEST(KNormTest, AgreesWithAPlainList) {
  constexpr int64_t kPrompt = 700;
  const auto key_of = [](Position position) { return testing::RandomVector({position}, 4); };
  const auto square = [&](Position position) {
    double sum = 0;
    for (const float x : key_of(position)) sum += static_cast<double>(x) * x;
    return sum;
  };
  Harness h(Make(methods::KNorm(), "sinks=1,recent=2"), {.dim = 4, .budget = 30});
  h.SetKeys([&](int, int, Position position) { return key_of(position); });
  Positions list;
  for (int64_t seen = 0; seen < kPrompt + 200;) {
    const int64_t n = seen == 0 ? kPrompt : 1;
    if (seen == 0) {
      h.Prefill(n, NoWeights());
    } else {
      h.Decode(NoWeights());
    }
    for (int64_t i = 0; i < n; ++i) list.push_back(static_cast<Position>(seen + i));
    while (list.size() > 30) {
      list.erase(std::max_element(list.begin() + 1, list.end() - 2,
                                  [&](Position a, Position b) { return square(a) < square(b); }));
    }
    seen += n;
    ASSERT_EQ(h.Kept(), list) << "after " << seen;
  }
}

TEST(KNormTest, MayGrowWhileGenerating) {
  Harness h(Make(methods::KNorm(), "decode=false"), {.budget = 5});
  h.Prefill(9, NoWeights());
  EXPECT_EQ(h.Kept().size(), 5u);
  h.Decode(NoWeights());
  EXPECT_EQ(h.Kept().size(), 6u);
}

}  // namespace
}  // namespace winnow::compression
