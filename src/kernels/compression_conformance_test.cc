// The compression operations on every instruction set this machine has, against the reference
// backend.

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

class CompressionConformance : public Conformance {};

TEST_P(CompressionConformance, ReadRows) {
  for (const TensorType type : kCacheTypes) {
    for (const int dim : {64, 96, 128}) {
      const auto run = [&](Backend& b) {
        const StoredRows stored = Store(b, type, dim, Random(1).Normal(300 * dim));
        std::vector<int32_t> rows = {299, 0, 7, 7};
        for (int32_t i = 0; i < 200; ++i) rows.push_back((i * 37) % 300);
        return Read(b, stored.head, rows);
      };
      Compare(run, 0, std::string(gguf::GetTypeInfo(type).name));
    }
  }
}

TEST_P(CompressionConformance, CosinesToMean) {
  for (const TensorType type : kCacheTypes) {
    for (const int dim : {64, 96, 128}) {
      for (const int n : {1, 33, 2500}) {
        const auto run = [&](Backend& b) {
          std::vector<float> values = Random(7).Normal(int64_t{n} * dim);
          for (float& x : values) x += 0.5F;  // rows have a direction in common
          if (n > 1) std::fill_n(values.begin(), dim, 0.0F);
          const StoredRows stored = Store(b, type, dim, values);
          std::vector<int32_t> rows = AllRows(n);
          std::reverse(rows.begin(), rows.end());
          std::vector<double> cosines(rows.size());
          const MeanCosines head = {stored.head, rows, cosines};
          b.CosinesToMean({&head, 1});
          return std::vector<float>(cosines.begin(), cosines.end());
        };
        Compare(run, kCosineTolerance, std::string(gguf::GetTypeInfo(type).name));
      }
    }
  }
}

// Heads of any length, type and dimension share a call; the number of threads changes no bit.
TEST_P(CompressionConformance, CompareWithMeanOfSeveralHeads) {
  struct Kind {
    TensorType type;
    int dim, n;
  };
  const Kind kinds[] = {{TensorType::kF16, 64, 700},  {TensorType::kQ8_0, 96, 1},
                        {TensorType::kF32, 40, 0},    {TensorType::kBF16, 128, 33},
                        {TensorType::kQ4_0, 64, 150}, {TensorType::kF16, 80, 513}};
  const auto run = [&](Backend& b) {
    std::vector<StoredRows> stored;
    std::vector<std::vector<int32_t>> rows;
    std::vector<std::vector<double>> cosines;
    for (const Kind& kind : kinds) {
      std::vector<float> values = Random(kind.n).Normal(int64_t{std::max(kind.n, 1)} * kind.dim);
      for (float& x : values) x += 0.5F;
      stored.push_back(Store(b, kind.type, kind.dim, values));
      rows.push_back(AllRows(kind.n));
      cosines.emplace_back(rows.back().size());
    }
    std::vector<MeanCosines> heads;
    for (size_t i = 0; i < rows.size(); ++i) {
      heads.push_back({stored[i].head, rows[i], cosines[i]});
    }
    b.CosinesToMean(heads);
    std::vector<float> all;
    for (const auto& own : cosines) all.insert(all.end(), own.begin(), own.end());
    return all;
  };
  Compare(run, kCosineTolerance, "several heads");
  ThreadPool one(1), three(3);
  EXPECT_EQ(run(*Cpu(one)), run(*Cpu(three)));
}

TEST_P(CompressionConformance, CompareWithMeanOfRowsFarFromOne) {
  const int dim = 64;
  const auto run = [&](Backend& b) {
    std::vector<float> values = Random(8).Normal(6 * dim);
    const float scales[] = {1, 1e37F, 1e-30F, 1e18F, 0, 1e-12F};
    for (size_t i = 0; i < values.size(); ++i) values[i] *= scales[i / dim];
    const StoredRows stored = Store(b, TensorType::kF32, dim, values);
    const std::vector<int32_t> rows = AllRows(6);
    std::vector<double> cosines(rows.size());
    const MeanCosines head = {stored.head, rows, cosines};
    b.CosinesToMean({&head, 1});
    return std::vector<float>(cosines.begin(), cosines.end());
  };
  Compare(run, kCosineTolerance, "far from one");
}

TEST_P(CompressionConformance, SumRows) {
  for (const TensorType type : kCacheTypes) {
    // Sums that round to different steps of the storage type differ by one step.
    const double tolerance = type == TensorType::kF32    ? kFloatTolerance
                             : type == TensorType::kF16  ? 1e-3
                             : type == TensorType::kBF16 ? 8e-3
                             : type == TensorType::kQ8_0 ? 8e-3
                                                         : 0.13;
    for (const int dim : {64, 96, 128}) {
      const auto run = [&](Backend& b) {
        constexpr int kRows = 100;
        const StoredRows stored = Store(b, type, dim, Random(2).Normal(kRows * dim));
        // Every second row becomes a sum of itself and other rows.
        std::vector<std::vector<int32_t>> rows;
        std::vector<std::vector<float>> weights;
        for (int32_t i = 0; i < kRows; i += 2) {
          rows.push_back({i});
          for (int32_t j = 0; j < i % 7; ++j) rows.back().push_back((i + 11 * j) % kRows);
          weights.push_back(
              Random(static_cast<uint64_t>(i)).Normal(static_cast<int64_t>(rows.back().size())));
        }
        std::vector<RowSum> sums;
        for (size_t i = 0; i < rows.size(); ++i) sums.push_back({rows[i][0], rows[i], weights[i]});
        b.SumRows(stored.head, sums);
        return Read(b, stored.head, AllRows(kRows));
      };
      Compare(run, tolerance, std::string(gguf::GetTypeInfo(type).name));
    }
  }
}

TEST_P(CompressionConformance, SumsReadTheRowsAsTheyWere) {
  const auto run = [&](Backend& b) {
    const StoredRows stored = Store(b, TensorType::kF32, 2, std::vector<float>{1, 2, 30, 40});
    const std::vector<int32_t> rows = {0, 1};
    const std::vector<float> first = {0, 1}, second = {1, 0.5f};
    const RowSum sums[] = {{0, rows, first}, {1, rows, second}};
    b.SumRows(stored.head, sums);
    std::vector<float> result = Read(b, stored.head, AllRows(2));
    EXPECT_EQ(result, (std::vector<float>{30, 40, 16, 22}));
    return result;
  };
  Compare(run, 0, "sums");
}

TEST_P(CompressionConformance, ForEachCallsEveryItemOnce) {
  ThreadPool three(3);
  const std::unique_ptr<Backend> backends[] = {Cpu(three), MakeReferenceBackend()};
  for (const std::unique_ptr<Backend>& b : backends) {
    for (const int64_t n : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      b->ForEach(n, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

// Lists of any length: whole vectors and a remainder.
TEST_P(CompressionConformance, AttentionIsAddedAndScored) {
  ThreadPool one(1);
  const std::unique_ptr<Backend> backends[] = {MakeReferenceBackend(), Cpu(one)};
  for (const size_t n : {1, 7, 8, 31, 100, 1025}) {
    std::vector<double> total[2];
    std::vector<Half> past[2], current[2];
    std::vector<float> scores[2];
    AttentionTotals totals[2];
    for (size_t b = 0; b < 2; ++b) {
      Random random(n);
      const auto count = static_cast<int64_t>(n);
      for (const float x : random.Normal(count)) total[b].push_back(1e6 * std::abs(x));
      for (const float x : random.Normal(count)) past[b].emplace_back(std::abs(x));
      for (const float x : random.Normal(count)) current[b].emplace_back(1e-4f * std::abs(x));
      std::vector<float> weights = random.Normal(count, 0.01f);
      for (float& weight : weights) weight = std::abs(weight);
      const AttentionSums sums = {.total = total[b], .past = past[b], .current = current[b]};
      totals[b] = backends[b]->AddAttention(sums, weights);
      scores[b].resize(n);
      total[b][n / 2] = std::numeric_limits<double>::quiet_NaN();
      backends[b]->ScoreAttention(sums, 1e-6, 0.5, scores[b]);
      total[b][n / 2] = 0;
    }
    EXPECT_EQ(total[0], total[1]) << "doubles are exact";
    for (size_t i = 0; i < n; ++i) {
      // A sum between two halves may round to either.
      EXPECT_NEAR(current[0][i], current[1][i], 0.001 * current[0][i]) << i << " of " << n;
      EXPECT_NEAR(scores[0][i], scores[1][i], 1e-3 * scores[0][i]) << i << " of " << n;
      EXPECT_FALSE(std::isnan(scores[1][i]));
    }
    EXPECT_NEAR(totals[0].total, totals[1].total, 1e-12 * totals[0].total);
    EXPECT_NEAR(totals[0].window, totals[1].window, 1e-3 * totals[0].window);
  }
}

// Odd sizes, strides larger than the rows, with and without accumulation.
TEST_P(CompressionConformance, MultipliesMatricesOnTheHost) {
  for (const int64_t rows : {1, 5, 6, 13}) {
    for (const int64_t cols : {1, 15, 16, 33, 64, 100}) {
      for (const int64_t n : {1, 64, 301}) {
        for (const bool accumulate : {false, true}) {
          const auto run = [&](Backend& b) {
            const std::vector<float> left = Random(1).Normal(rows * (n + 3));
            const std::vector<float> right = Random(2).Normal(n * (cols + 5));
            std::vector<float> out = Random(3).Normal(rows * (cols + 1));
            b.Multiply({.a = {left.data(), rows, n, n + 3},
                        .b = {right.data(), n, cols, cols + 5},
                        .out = {out.data(), rows, cols, cols + 1},
                        .accumulate = accumulate});
            return out;
          };
          Compare(run, 1e-5,
                  std::to_string(rows) + "x" + std::to_string(n) + "x" + std::to_string(cols));
        }
      }
    }
  }
}

TEST_P(CompressionConformance, ExpMinusMax) {
  for (const int n : {1, 16, 100}) {
    const auto run = [&](Backend& b) {
      std::vector<float> x = Random(5).Normal(n, 10.0f);
      x[0] = 1000;  // clamped to e^80
      const auto nan = static_cast<size_t>(n / 2);
      if (n > 1) x[nan] = std::numeric_limits<float>::quiet_NaN();
      b.ExpMinusMax(x, 3.0f);
      if (n > 1) {
        EXPECT_EQ(x[nan], 0);
        x[nan] = 1;
      }
      for (float& one : x) one = std::log(one);
      return x;
    };
    Compare(run, 1e-5, std::to_string(n));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CompressionConformance, testing::ValuesIn(TestedTargets()),
                         NameOfTarget);

}  // namespace
}  // namespace winnow::kernels
