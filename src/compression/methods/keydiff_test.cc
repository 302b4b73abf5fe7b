#include <gtest/gtest.h>

#include <cmath>
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

TEST(KeyDiffTest, KeepsKeysUnlikeTheOthers) {
  Harness h(Make(methods::KeyDiff()), {.budget = 2});
  h.SetKeys([](int, int, Position position) {
    const std::vector<std::vector<float>> keys = {{1, 0}, {5, 0.5f}, {0, 3}, {2, 0}, {-1, 0.1f}};
    return keys[static_cast<size_t>(position)];
  });
  h.Prefill(5, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{2, 4}));
}

TEST(KeyDiffTest, EqualKeysKeepTheNewestAndZeroKeysAreNeutral) {
  Harness h(Make(methods::KeyDiff()), {.budget = 3});
  h.SetKeys([](int, int, Position) { return std::vector<float>{0, 0}; });
  h.Prefill(6, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{3, 4, 5}));
}

// A stream against a plain list: evicts the key most similar to the mean of all unit keys, of equal
// ones the oldest.
TEST(KeyDiffTest, AgreesWithAPlainList) {
  constexpr int kDim = 6;
  constexpr size_t kSinks = 2;
  constexpr size_t kRecent = 3;
  const auto key_of = [](int head, Position position) {
    return testing::RandomVector({head, position}, kDim);
  };
  Harness h(Make(methods::KeyDiff(), "sinks=2,recent=3"),
            {.n_q_heads = 2, .n_kv_heads = 2, .dim = kDim, .budget = 12});
  h.SetKeys([&](int, int head, Position position) { return key_of(head, position); });
  std::vector<Positions> lists(2);
  for (Position position = 0; position < 200; ++position) {
    h.Decode(NoWeights());
    for (int head = 0; head < 2; ++head) {
      Positions& list = lists[static_cast<size_t>(head)];
      list.push_back(position);
      if (list.size() > 12) {
        std::vector<double> mean(kDim, 0.0);
        const auto unit = [&](Position p) {
          const std::vector<float> key = key_of(head, p);
          double norm = 0;
          for (const float x : key) norm += static_cast<double>(x) * x;
          std::vector<double> out;
          for (const float x : key) out.push_back(x / std::sqrt(norm));
          return out;
        };
        for (const Position p : list) {
          for (size_t i = 0; i < kDim; ++i) mean[i] += unit(p)[i];
        }
        size_t victim = kSinks;
        double max = -1e9;
        for (size_t i = kSinks; i < list.size() - kRecent; ++i) {
          double dot = 0;
          for (size_t d = 0; d < kDim; ++d) dot += mean[d] * unit(list[i])[d];
          if (dot > max) {
            max = dot;
            victim = i;
          }
        }
        list.erase(list.begin() + static_cast<int64_t>(victim));
      }
      ASSERT_EQ(h.Kept(0, head), list) << "after " << position;
    }
  }
}

}  // namespace
}  // namespace winnow::compression
