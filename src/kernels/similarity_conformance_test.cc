// Searches for the most similar rows, on every instruction set this machine has, against the
// reference backend.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backends.h"
#include "kernels/testing/conformance.h"
#include "kernels/testing/stored_rows.h"

namespace winnow::kernels {
namespace {

using namespace testing_support;  // NOLINT(google-build-using-namespace): a test's own vocabulary

using Measure = Similarity::Measure;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  int64_t n_from = 1;
  int64_t n_to = 1;
  int key_dim = 64;
  int value_dim = 64;
  TensorType type = TensorType::kF16;
  Measure measure = Measure::kKeys;
  double min_similarity = -kInfinity;

  std::string Text() const {
    return std::to_string(n_from) + " to " + std::to_string(n_to) + ", dims " +
           std::to_string(key_dim) + ", " + std::to_string(value_dim) + ", " +
           std::string(gguf::GetTypeInfo(type).name) + ", measure " +
           std::to_string(static_cast<int>(measure));
  }
};

struct Found {
  std::vector<float> best;
  std::vector<int32_t> best_to;
  bool operator==(const Found&) const = default;
};

Found Room(size_t n_from) { return {std::vector<float>(n_from), std::vector<int32_t>(n_from, -2)}; }

constexpr int64_t kStored = 2400;

Found RunSimilar(Backend& b, const Case& c, std::span<const int32_t> to) {
  Random random(3);
  const StoredRows keys = Store(b, c.type, c.key_dim, random.Normal(kStored * c.key_dim));
  const StoredRows values = Store(b, c.type, c.value_dim, random.Normal(kStored * c.value_dim));
  std::vector<int32_t> from;
  for (int64_t i = 0; i < c.n_from; ++i)
    from.push_back(static_cast<int32_t>((i * 29 + 1) % kStored));
  Found found = Room(from.size());
  const Similarity search = {.keys = keys.head,
                             .values = values.head,
                             .measure = c.measure,
                             .from = from,
                             .to = to,
                             .min_similarity = c.min_similarity,
                             .best = found.best,
                             .best_to = found.best_to};
  b.MostSimilar({&search, 1});
  return found;
}

class SimilarityConformance : public Conformance {
 protected:
  void Check(const Case& c) {
    std::vector<int32_t> to;
    for (int64_t i = 0; i < c.n_to; ++i) to.push_back(static_cast<int32_t>((i * 31 + 2) % kStored));
    const std::unique_ptr<Backend> reference = MakeReferenceBackend();
    const Found expected = RunSimilar(*reference, c, to);
    ThreadPool one(1), three(3);
    const Found found = RunSimilar(*Cpu(one), c, to);
    ExpectClose(found.best, expected.best, kCosineTolerance, c.Text());
    for (size_t i = 0; i < found.best_to.size(); ++i) {
      if (found.best_to[i] == expected.best_to[i]) continue;
      // A different row is fine only if it is equally similar within float precision.
      const int32_t choice = found.best_to[i];
      ASSERT_TRUE(choice >= 0 && choice < c.n_to) << c.Text();
      const Found alone = RunSimilar(*reference, c, std::span(to).subspan(choice, 1));
      EXPECT_NEAR(alone.best[i], expected.best[i], kCosineTolerance) << c.Text();
    }
    const Found again = RunSimilar(*Cpu(three), c, to);
    EXPECT_EQ(again.best, found.best) << c.Text();
    EXPECT_EQ(again.best_to, found.best_to) << c.Text();
  }
};

TEST_P(SimilarityConformance, EveryTypeAndMeasure) {
  for (const TensorType type : kCacheTypes) {
    for (const Measure measure : {Measure::kKeys, Measure::kValues, Measure::kProduct}) {
      Check({.n_from = 100, .n_to = 150, .type = type, .measure = measure});
      Check({.n_from = 1, .n_to = 150, .type = type, .measure = measure});
    }
  }
}

TEST_P(SimilarityConformance, AroundTilesAndBlocks) {
  for (const int64_t n_from : {0, 1, 5, 6, 7, 47, 48, 49, 100}) {
    for (const int64_t n_to : {1, 15, 16, 63, 64, 65, 129, 399}) {
      Check({.n_from = n_from, .n_to = n_to});
    }
  }
}

TEST_P(SimilarityConformance, EveryDimension) {
  for (const int dim : {1, 20, 64, 80, 96, 128}) {
    Check(
        {.n_from = 60, .n_to = 70, .key_dim = dim, .value_dim = 32, .measure = Measure::kProduct});
    Check({.n_from = 60, .n_to = 70, .key_dim = 32, .value_dim = dim, .measure = Measure::kValues});
  }
}

TEST_P(SimilarityConformance, EqualOnesAndZeros) {
  // Rows: x, 2 x, 0, -x. x and 2 x are equally similar, so the first in `to` wins; a zero row has
  // cosine 0 with every row.
  const auto run = [&](Backend& b) {
    std::vector<float> values(4 * 40, 0.0f);
    for (size_t i = 0; i < 40; ++i) {
      values[i] = 1;
      values[40 + i] = 2;
      values[120 + i] = -1;
    }
    const StoredRows stored = Store(b, TensorType::kF32, 40, values);
    std::vector<int32_t> to(300, 3);
    to[17] = 1;
    to[99] = 0;
    const std::vector<int32_t> from = {0, 1, 2, 3};
    Found found = Room(4);
    const Similarity search = {.keys = stored.head,
                               .values = {},
                               .measure = Measure::kKeys,
                               .from = from,
                               .to = to,
                               .best = found.best,
                               .best_to = found.best_to};
    b.MostSimilar({&search, 1});
    EXPECT_EQ(found.best_to, (std::vector<int32_t>{17, 17, 0, 0}));
    return found.best;
  };
  Compare(run, kCosineTolerance, "equal ones");
}

// Rows of seven kinds: all rows of a kind are equally similar, so the rank decides.
TEST_P(SimilarityConformance, EqualOnesByRank) {
  constexpr int kKinds = 7;
  std::vector<int32_t> ranks, to;
  for (int64_t row = 0; row < kStored; ++row) {
    ranks.push_back(static_cast<int32_t>(row * 169 % kStored));  // coprime factors: each rank once
    if (row % 3 != 1) to.push_back(static_cast<int32_t>(row));
  }
  const auto at = [](const auto& list, int32_t i) { return list[static_cast<size_t>(i)]; };
  const auto check = [&](Backend& b, const StoredRows& stored, Measure measure, int32_t n_from) {
    std::vector<int32_t> from;
    for (int32_t i = 0; i < n_from; ++i) from.push_back(3 * i + 1);
    Found found = Room(from.size());
    const Similarity search = {.keys = stored.head,
                               .values = stored.head,
                               .measure = measure,
                               .from = from,
                               .to = to,
                               .ranks = ranks,
                               .best = found.best,
                               .best_to = found.best_to};
    b.MostSimilar({&search, 1});
    for (size_t i = 0; i < from.size(); ++i) {
      int32_t expected = -1;
      for (const int32_t row : to) {
        const bool lower = expected < 0 || at(ranks, row) < at(ranks, expected);
        if (row % kKinds == from[i] % kKinds && lower) expected = row;
      }
      EXPECT_EQ(at(to, found.best_to[i]), expected) << b.name() << ", row " << from[i];
    }
  };
  ThreadPool one(1), three(3);
  const std::unique_ptr<Backend> backends[] = {MakeReferenceBackend(), Cpu(one), Cpu(three)};
  for (const auto& [type, dim] :
       {std::pair{TensorType::kF16, 64}, {TensorType::kF16, 20}, {TensorType::kQ8_0, 64}}) {
    Random random(8);
    const std::vector<float> kinds = random.Normal(kKinds * dim);
    std::vector<float> values;
    for (int64_t row = 0; row < kStored; ++row) {
      const auto kind = kinds.begin() + row % kKinds * dim;
      values.insert(values.end(), kind, kind + dim);
    }
    for (const std::unique_ptr<Backend>& b : backends) {
      const StoredRows stored = Store(*b, type, dim, values);
      for (const Measure measure : {Measure::kKeys, Measure::kValues, Measure::kProduct}) {
        for (const int32_t n_from : {1, 2, 10}) check(*b, stored, measure, n_from);
      }
    }
  }
}

// The result is that of a search without `min_similarity`, or nothing if that is less similar.
TEST_P(SimilarityConformance, MinSimilarity) {
  std::vector<int32_t> to = AllRows(kStored);
  // No row of `from` is compared with itself.
  std::erase_if(to, [](int32_t row) { return row % 29 == 1; });
  for (const TensorType type : {TensorType::kF16, TensorType::kQ8_0}) {
    for (const Measure measure : {Measure::kKeys, Measure::kValues, Measure::kProduct}) {
      for (const int64_t n_from : {1, 2, 10}) {
        Case c = {.n_from = n_from, .type = type, .measure = measure};
        const auto cpu = [&](int n_threads) {
          ThreadPool pool(n_threads);
          return RunSimilar(*Cpu(pool), c, to);
        };
        const Found all = cpu(1);
        std::vector<float> sorted = all.best;
        std::sort(sorted.begin(), sorted.end());
        for (const double min_similarity :
             {-0.1, 0.0, 0.9 * sorted[0], double{sorted[sorted.size() / 2]}, 1.1 * sorted.back()}) {
          c.min_similarity = min_similarity;
          Found expected = all;
          for (size_t i = 0; i < expected.best.size(); ++i) {
            if (all.best[i] >= min_similarity) continue;
            expected.best[i] = -static_cast<float>(kInfinity);
            expected.best_to[i] = Similarity::kNone;
          }
          EXPECT_EQ(cpu(1), expected) << c.Text() << ", least " << min_similarity;
          EXPECT_EQ(cpu(3), expected) << c.Text() << ", least " << min_similarity;
        }
        // When rounding cannot decide, the reference must agree.
        c.min_similarity = 1.1 * sorted.back();
        const Found none = RunSimilar(*MakeReferenceBackend(), c, to);
        EXPECT_EQ(none.best_to, cpu(1).best_to) << c.Text();
        EXPECT_EQ(none.best, cpu(1).best) << c.Text();
      }
    }
  }
}

// Several searches in one call give the same results as each alone.
TEST_P(SimilarityConformance, SeveralSearches) {
  ThreadPool one(1), three(3);
  const std::unique_ptr<Backend> cpus[] = {Cpu(one), Cpu(three)};
  for (const std::unique_ptr<Backend>& b : cpus) {
    Random random(4);
    std::vector<StoredRows> keys, values;
    std::vector<std::vector<int32_t>> from, to;
    std::vector<Found> together, alone;
    // Few and many rows, an empty search, more than one tile, different head sizes.
    for (const auto& [n_from, n_to, dim] :
         {std::tuple{1, 2300, 64}, {10, 33, 64}, {0, 5, 20}, {2, 1500, 20}, {1, 1, 96}}) {
      keys.push_back(Store(*b, TensorType::kF16, dim, random.Normal(kStored * dim)));
      values.push_back(Store(*b, TensorType::kF16, 32, random.Normal(kStored * 32)));
      std::vector<int32_t> rows = AllRows(kStored);
      from.push_back({rows.begin(), rows.begin() + n_from});
      to.push_back({rows.end() - n_to, rows.end()});
      together.push_back(Room(from.back().size()));
      alone.push_back(Room(from.back().size()));
    }
    const auto search = [&](size_t i, Found& found) {
      return Similarity{.keys = keys[i].head,
                        .values = values[i].head,
                        .measure = i % 2 == 0 ? Measure::kProduct : Measure::kKeys,
                        .from = from[i],
                        .to = to[i],
                        .best = found.best,
                        .best_to = found.best_to};
    };
    std::vector<Similarity> searches;
    for (size_t i = 0; i < from.size(); ++i) {
      searches.push_back(search(i, together[i]));
      const Similarity own = search(i, alone[i]);
      b->MostSimilar({&own, 1});
    }
    b->MostSimilar(searches);
    EXPECT_EQ(together, alone);
    b->MostSimilar({});
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimilarityConformance, testing::ValuesIn(TestedTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels
