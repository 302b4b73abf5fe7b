#include "compression/methods/winnow_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "compression/testing/random.h"
#include "kernels/backends.h"

namespace winnow::compression::methods {
namespace {

using Sizes = std::vector<int64_t>;
using compression::testing::RandomVector;

// Adds one row of one query.
void AddRow(const kernels::Backend& backend, ReferenceRows& rows, const std::vector<float>& query,
            float norm, int64_t n_visible, int64_t first_own, const HeadEntriesOnHost& entries) {
  const int64_t row = rows.size();
  AddRows({.queries = query, .norms = {&norm, 1}, .n_visible = {&n_visible, 1}}, first_own, rows);
  FillOwn(backend, row, {&n_visible, 1}, first_own, entries, rows);
}

TEST(CurveSizes, OneToEightThenThirdsOfADoubling) {
  EXPECT_EQ(CurveSizes(0), Sizes{});
  EXPECT_EQ(CurveSizes(3), (Sizes{1, 2, 3}));
  EXPECT_EQ(CurveSizes(8), (Sizes{1, 2, 3, 4, 5, 6, 7, 8}));
  // 8 * 2^(1/3) = 10.08, 12.7, 16, 20.2
  EXPECT_EQ(CurveSizes(20), (Sizes{1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20}));
}

// Two entries of one dimension with values 1 and 5 and equal keys: a row gives each one half, so
// the output is 3.
class OneRow : public ::testing::Test {
 protected:
  OneRow() {
    entries_.n = 2;
    entries_.key_dim = entries_.value_dim = 1;
    entries_.keys = {0, 0};
    entries_.values = {1, 5};
    entries_.biases = {0, 0};
    rows_.group = rows_.key_dim = rows_.value_dim = 1;
    rows_.scale = 1;
  }

  // The curve of the entries in this order.
  ErrorCurve Curve(const std::vector<int32_t>& order,
                   const std::vector<std::vector<float>>& gram) const {
    return MakeErrorCurve(*backend_, rows_, entries_.InOrder(order), 0, gram);
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
  HeadEntriesOnHost entries_;
  ReferenceRows rows_;
  std::vector<std::vector<float>> identity_ = {{1}};
};

TEST_F(OneRow, ErrorIsTheSquaredDifferenceOverTheSquaredNorm) {
  const std::vector<float> query = {1};
  AddRow(*backend_, rows_, query, /*norm=*/2, /*n_visible=*/2, /*first_own=*/2, entries_);
  const std::vector<int32_t> order = {1, 0};
  const ErrorCurve curve = Curve(order, identity_);
  EXPECT_EQ(curve.sizes, (Sizes{1, 2}));
  // Entry 1 alone gives 5: (3 - 5)^2 / 2^2.
  EXPECT_NEAR(curve.errors[0], 1, 1e-6);
  EXPECT_NEAR(curve.errors[1], 0, 1e-12);
}

TEST_F(OneRow, TheOutputProjectionWeighsTheDifference) {
  const std::vector<float> query = {1};
  AddRow(*backend_, rows_, query, 1, 2, 2, entries_);
  const std::vector<std::vector<float>> gram = {{9}};
  const ErrorCurve curve = Curve({1, 0}, gram);
  EXPECT_NEAR(curve.errors[0], 4 * 9, 1e-5);
}

TEST_F(OneRow, WhatTheRowGivesToItsOwnEntriesStays) {
  // A third entry, the row's own, of value 6 and the same key: the output is (1 + 5 + 6) / 3 = 4.
  HeadEntriesOnHost all = entries_;
  all.n = 3;
  all.keys = {0, 0, 0};
  all.values = {1, 5, 6};
  all.biases = {0, 0, 0};
  const std::vector<float> query = {1};
  AddRow(*backend_, rows_, query, 1, 3, 2, all);
  EXPECT_FLOAT_EQ(rows_.own_sum[0], 1);
  EXPECT_FLOAT_EQ(rows_.own_output[0], 6);
  const ErrorCurve curve = Curve({0, 1}, identity_);
  // (1 + 6) / 2 = 3.5
  EXPECT_NEAR(curve.errors[0], 0.25, 1e-6);
  EXPECT_NEAR(curve.errors[1], 0, 1e-12);
  const Targets targets = MakeTargets(*backend_, rows_, entries_);
  EXPECT_FLOAT_EQ(targets.outputs[0], 4);
  EXPECT_FLOAT_EQ(targets.masses[0], 3);
  EXPECT_NEAR(targets.weights[0], 1.0 / 3, 1e-7);
}

TEST_F(OneRow, BiasesCountLikeSeveralEntries) {
  entries_.biases = {std::log(3.0f), 0};
  const std::vector<float> query = {1};
  AddRow(*backend_, rows_, query, 1, 2, 2, entries_);
  const Targets targets = MakeTargets(*backend_, rows_, entries_);
  EXPECT_NEAR(targets.outputs[0], (3 * 1 + 5) / 4.0, 1e-6);
  EXPECT_NEAR(targets.weights[0], 0.75, 1e-6);
}

// Every size computed separately, in doubles, against every instruction set: many rows in a group
// of two, some fixed entries, rows that do not see the newest entries.
TEST(ErrorCurves, AsComputedPlainly) {
  constexpr int64_t kEntries = 90, kOwn = 7, kRows = 37, kFixed = 5;
  constexpr int kKeyDim = 20, kValueDim = 37, kGroup = 2;
  const auto random = [](int64_t which, int64_t n) {
    return RandomVector({which, 0}, static_cast<int>(n));
  };
  HeadEntriesOnHost all = {.n = kEntries + kOwn,
                           .key_dim = kKeyDim,
                           .value_dim = kValueDim,
                           .keys = random(1, (kEntries + kOwn) * kKeyDim),
                           .values = random(2, (kEntries + kOwn) * kValueDim),
                           .biases = random(3, kEntries + kOwn)};
  std::vector<std::vector<float>> gram;
  gram.reserve(kGroup);
  for (int head = 0; head < kGroup; ++head) {
    gram.push_back(random(4 + head, kValueDim * kValueDim));
  }
  std::vector<int32_t> order;
  order.reserve(kEntries);
  for (int32_t i = 0; i < kEntries; ++i) order.push_back((i * 37 + 11) % kEntries);
  std::vector<int64_t> n_visible;
  std::vector<float> norms;
  for (int64_t row = 0; row < kRows; ++row) {
    n_visible.push_back(row < 30 ? kEntries + 1 + row % kOwn : kEntries - 3);
    norms.push_back(1 + 0.1f * static_cast<float>(row));
  }
  const std::vector<float> queries = random(6, kRows * kGroup * kKeyDim);
  const double scale = 0.3;

  const ErrorCurve sizes = {.sizes = CurveSizes(kEntries - kFixed), .errors = {}};
  std::vector<double> expected(sizes.sizes.size());
  for (int64_t row = 0; row < kRows; ++row) {
    const auto r = static_cast<size_t>(row);
    for (int head = 0; head < kGroup; ++head) {
      const float* query = queries.data() + (row * kGroup + head) * kKeyDim;
      const auto weight = [&](int64_t entry) -> double {
        if (entry >= n_visible[r]) return 0;
        double score = all.biases[static_cast<size_t>(entry)];
        for (int d = 0; d < kKeyDim; ++d) {
          score += scale * query[d] * all.keys[static_cast<size_t>(d * all.n + entry)];
        }
        return std::exp(score);
      };
      const auto output = [&](int64_t n_kept) {
        std::vector<double> sum(kValueDim);
        double mass = 0;
        const auto add = [&](int64_t entry) {
          mass += weight(entry);
          for (int d = 0; d < kValueDim; ++d) {
            sum[static_cast<size_t>(d)] +=
                weight(entry) * all.values[static_cast<size_t>(entry * kValueDim + d)];
          }
        };
        for (int64_t i = kEntries; i < all.n; ++i) add(i);
        for (int64_t i = 0; i < kFixed + n_kept; ++i) add(order[static_cast<size_t>(i)]);
        for (double& x : sum) x /= mass;
        return sum;
      };
      const std::vector<double> full = output(kEntries - kFixed);
      for (size_t i = 0; i < expected.size(); ++i) {
        const std::vector<double> some = output(sizes.sizes[i]);
        double square = 0;
        for (size_t a = 0; a < kValueDim; ++a) {
          for (size_t b = 0; b < kValueDim; ++b) {
            square += (full[a] - some[a]) * (full[b] - some[b]) *
                      gram[static_cast<size_t>(head)][a * kValueDim + b];
          }
        }
        expected[i] += square / (double{norms[r]} * norms[r]);
      }
    }
  }

  ThreadPool pool(1);
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  backends.push_back(kernels::MakeReferenceBackend());
  for (const std::string& target : kernels::CpuTargets()) {
    backends.push_back(kernels::MakeCpuBackend({.pool = &pool, .target = target}).value());
  }
  for (const auto& backend : backends) {
    ReferenceRows rows;
    rows.group = kGroup;
    rows.key_dim = kKeyDim;
    rows.value_dim = kValueDim;
    rows.scale = static_cast<float>(scale);
    AddRows({.queries = queries, .norms = norms, .n_visible = n_visible}, kEntries, rows);
    FillOwn(*backend, 0, n_visible, kEntries, all, rows);
    const ErrorCurve curve = MakeErrorCurve(*backend, rows, all.InOrder(order), kFixed, gram);
    ASSERT_EQ(curve.sizes, sizes.sizes);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(curve.errors[i], expected[i], 1e-4 * std::fabs(expected[0]) + 1e-6)
          << backend->target() << ", size " << curve.sizes[i];
    }
  }
}

ErrorCurve GivenCurve(Sizes sizes, std::vector<double> errors) {
  return {.sizes = std::move(sizes), .errors = std::move(errors)};
}

TEST(FillCurves, SteepestFirst) {
  const std::vector<ErrorCurve> curves = {
      GivenCurve({1, 2, 3, 4}, {10, 4, 1, 0}),   // gains 6, 3, 1
      GivenCurve({1, 2, 3, 4}, {10, 5, 3, 0})};  // 5, then convex: 2.5, 2.5
  EXPECT_EQ(FillCurves(curves, 1, 2), (Sizes{1, 1}));
  EXPECT_EQ(FillCurves(curves, 1, 3), (Sizes{2, 1}));
  EXPECT_EQ(FillCurves(curves, 1, 4), (Sizes{2, 2}));
  EXPECT_EQ(FillCurves(curves, 1, 5), (Sizes{3, 2}));
  EXPECT_EQ(FillCurves(curves, 1, 6), (Sizes{3, 3}));
  EXPECT_EQ(FillCurves(curves, 1, 7), (Sizes{3, 4}));
  EXPECT_EQ(FillCurves(curves, 1, 100), (Sizes{4, 4}));
}

TEST(FillCurves, NothingIsLeftUnusedWhereNothingGains) {
  const std::vector<ErrorCurve> curves = {GivenCurve({1, 2, 3}, {0, 0, 0}),
                                          GivenCurve({1, 2}, {0, 0})};
  EXPECT_EQ(FillCurves(curves, 1, 4), (Sizes{3, 1}));
}

TEST(FillCurves, FloorsAreKeptAndHeadsWithoutEntriesTakeNone) {
  const std::vector<ErrorCurve> curves = {GivenCurve({1, 2, 3, 4}, {9, 9, 9, 9}),
                                          GivenCurve({}, {}),
                                          GivenCurve({1, 2, 3, 4}, {100, 60, 30, 0})};
  EXPECT_EQ(FillCurves(curves, 2, 5), (Sizes{2, 0, 3}));
}

TEST(FillCurves, NumbersOfABrokenModelStillFill) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<ErrorCurve> curves = {GivenCurve({1, 2, 3}, {nan, nan, nan}),
                                          GivenCurve({1, 2, 3}, {INFINITY, 1, 0})};
  const Sizes sizes = FillCurves(curves, 1, 4);
  EXPECT_EQ(sizes[0] + sizes[1], 4);
}

}  // namespace
}  // namespace winnow::compression::methods
