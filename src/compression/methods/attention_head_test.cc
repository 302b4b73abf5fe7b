#include "compression/methods/attention_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "compression/testing/random.h"
#include "kernels/backends.h"

namespace winnow::compression::methods {
namespace {

constexpr int64_t kAll = int64_t{1} << 60;
constexpr size_t kEntries = 700, kRows = 45, kKeyDim = 8, kValueDim = 20;

HeadToFit Head(size_t n_kept) {
  HeadToFit head = {.n_entries = kEntries,
                    .keys = testing::RandomVector({1}, kEntries * kKeyDim),
                    .values = testing::RandomVector({3}, kEntries * kValueDim),
                    .factors = std::vector<float>(kEntries, 1.0f),
                    .queries = testing::RandomVector({2}, kRows * kKeyDim),
                    .key_dim = kKeyDim,
                    .value_dim = kValueDim,
                    .scale = 3,
                    .n_kept = n_kept,
                    .n_protected = 2};
  head.factors[5] = 0.5;
  return head;
}

// Multiply-adds of the largest indivisible piece of any stage.
int64_t Smallest(size_t n_kept) {
  const size_t fewer = std::min(n_kept, kRows);
  return static_cast<int64_t>(
      std::max({kEntries * ((kKeyDim + kValueDim) / 8 + 8), fewer * (fewer / 2 + kValueDim + 512),
                2 * kRows * n_kept}));
}

struct Fitted {
  std::vector<int32_t> kept, evicted;
  std::vector<double> factors, values;
  bool operator==(const Fitted&) const = default;
};

struct Pieces {
  Fitted fitted;
  int64_t n = 0;
  int64_t max_work = 0, total = 0;
};

Pieces Fit(kernels::Backend& backend, size_t n_kept, const HeadFitOptions& options,
           int64_t max_work) {
  HeadFit fit(Head(n_kept), options);
  Pieces pieces;
  for (; !fit.done(); ++pieces.n) {
    const int64_t work = fit.Run(backend, max_work);
    pieces.max_work = std::max(pieces.max_work, work);
    pieces.total += work;
  }
  pieces.fitted = {fit.kept(), fit.evicted(), fit.factors(), fit.values().values};
  return pieces;
}

// n_kept covers fewer and more entries than rows, and more than one panel of the Cholesky factor.
TEST(AttentionHeadTest, PiecesOfAnySizeGiveTheSameBits) {
  const auto backend = kernels::MakeReferenceBackend();
  for (const size_t n_kept : {11, 40, 300}) {
    for (const HeadFitOptions& options :
         {HeadFitOptions{.bound = 3, .steps = 2}, HeadFitOptions{.bound = 1, .values = false},
          HeadFitOptions{.biases = false}, HeadFitOptions{.biases = false, .values = false}}) {
      const Pieces whole = Fit(*backend, n_kept, options, kAll);
      EXPECT_EQ(whole.n, 1);
      EXPECT_EQ(whole.fitted.kept.size(), n_kept);
      EXPECT_EQ(whole.fitted.evicted.size(), kEntries - n_kept);
      EXPECT_EQ(whole.fitted.factors.size(), options.biases ? n_kept : 0);
      EXPECT_EQ(whole.fitted.values.size(), options.values ? n_kept * kValueDim : 0);
      for (const int64_t max_work : {1, 1000, 12345, 300000}) {
        const Pieces pieces = Fit(*backend, n_kept, options, max_work);
        EXPECT_EQ(pieces.fitted, whole.fitted) << n_kept << " in pieces of " << max_work;
        EXPECT_LT(pieces.max_work, max_work + Smallest(n_kept));
        EXPECT_GE(pieces.n, pieces.total / (max_work + Smallest(n_kept)));
      }
    }
  }
}

TEST(AttentionHeadTest, AnyNumberOfThreadsGivesTheSameBits) {
  ThreadPool one(1), three(3);
  const auto alone = kernels::MakeCpuBackend({.pool = &one, .target = {}}).value();
  const auto together = kernels::MakeCpuBackend({.pool = &three, .target = {}}).value();
  for (const size_t n_kept : {40, 300}) {
    const HeadFitOptions options = {.bound = 3, .steps = 2};
    const Pieces expected = Fit(*alone, n_kept, options, kAll);
    EXPECT_EQ(Fit(*together, n_kept, options, kAll).fitted, expected.fitted);
    EXPECT_EQ(Fit(*together, n_kept, options, 100000).fitted, expected.fitted);
  }
}

// Without reference queries the newest entries stay, unchanged.
TEST(AttentionHeadTest, WithoutQueriesTheNewestStay) {
  const auto backend = kernels::MakeReferenceBackend();
  HeadToFit head = Head(5);
  head.queries.clear();
  HeadFit fit(head, {.bound = 3, .steps = 2});
  fit.Run(*backend, 1);
  ASSERT_TRUE(fit.done());
  EXPECT_EQ(fit.kept(), (std::vector<int32_t>{695, 696, 697, 698, 699}));
  EXPECT_TRUE(fit.factors().empty());
  EXPECT_EQ(fit.values().rows(), 0U);
}

}  // namespace
}  // namespace winnow::compression::methods
