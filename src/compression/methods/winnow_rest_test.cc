#include "compression/methods/winnow_rest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "compression/testing/random.h"
#include "kernels/backends.h"

namespace winnow::compression::methods {
namespace {

using compression::testing::RandomVector;

const kernels::Backend& Plain() {
  static const std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
  return *backend;
}

// n entries of two dimensions, and `n_rows` reference rows of one query head that see all of them.
struct Head {
  HeadEntriesOnHost entries;
  ReferenceRows rows;

  Head(int64_t n, int64_t n_rows) {
    entries.n = n;
    entries.key_dim = entries.value_dim = 2;
    entries.keys.resize(static_cast<size_t>(2 * n));
    for (int64_t i = 0; i < n; ++i) {
      const std::vector<float> key = RandomVector({1, i}, 2);
      const std::vector<float> value = RandomVector({2, i}, 2);
      entries.keys[static_cast<size_t>(i)] = key[0];
      entries.keys[static_cast<size_t>(n + i)] = key[1];
      entries.values.insert(entries.values.end(), value.begin(), value.end());
    }
    entries.biases.resize(static_cast<size_t>(n));
    rows.group = 1;
    rows.key_dim = rows.value_dim = 2;
    rows.scale = 1;
    Observe(n_rows);
  }

  // Adds n rows that see all entries.
  void Observe(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float norm = 1;
      AddRows(
          {.queries = RandomVector({3, i}, 2), .norms = {&norm, 1}, .n_visible = {&entries.n, 1}},
          entries.n, rows);
      FillOwn(Plain(), rows.size() - 1, {&entries.n, 1}, entries.n, entries, rows);
    }
  }
};

std::vector<cache::Slot> Slots(int64_t n) {
  std::vector<cache::Slot> slots;
  for (int64_t i = 0; i < n; ++i) slots.push_back(static_cast<cache::Slot>(n - 1 - i));
  return slots;
}

// With equal keys the mean key equals each of them, and a run of m entries has m times its mass.
TEST(RestRows, BiasOfEqualKeysIsTheLogarithmOfTheirNumber) {
  Head head(6, 4);
  for (float& key : head.entries.keys) key = 0.5f;
  head.rows = Head(6, 0).rows;
  head.Observe(4);
  const Targets targets = MakeTargets(Plain(), head.rows, head.entries);
  cache::HeadPlan plan;
  const std::vector<cache::Slot> slots = Slots(6);
  AddRestRows(head.rows, head.entries, targets, std::vector<int32_t>{0, 1, 2, 4, 5}, 2, slots,
              plan);
  // Runs of two and three: ranks 0, 1 and 2, 4, 5; the newest stays, in slot 5 - rank.
  ASSERT_EQ(plan.merges.size(), 2u);
  EXPECT_EQ(plan.merges[0], (cache::HeadPlan::Merge{.into = 4, .n_sources = 2}));
  EXPECT_EQ(plan.merges[1], (cache::HeadPlan::Merge{.into = 0, .n_sources = 3}));
  EXPECT_EQ(plan.evict, (std::vector<cache::Slot>{5, 3, 1}));
  ASSERT_EQ(plan.biases.size(), 2u);
  EXPECT_EQ(plan.biases[0].slot, 4);
  EXPECT_NEAR(plan.biases[0].bias, std::log(2.0), 1e-5);
  EXPECT_NEAR(plan.biases[1].bias, std::log(3.0), 1e-5);
  for (const cache::HeadPlan::Source& source : plan.sources) {
    EXPECT_EQ(source.key_weight, source.value_weight);
  }
  EXPECT_NEAR(plan.sources[0].key_weight, 0.5, 1e-6);
  EXPECT_NEAR(plan.sources[4].key_weight, 1.0 / 3, 1e-6);
}

// A run of one entry is that entry.
TEST(RestRows, OfSingleEntriesChangeNothing) {
  Head head(4, 3);
  const Targets targets = MakeTargets(Plain(), head.rows, head.entries);
  cache::HeadPlan plan;
  const std::vector<cache::Slot> slots = Slots(4);
  AddRestRows(head.rows, head.entries, targets, std::vector<int32_t>{1, 3}, 2, slots, plan);
  EXPECT_TRUE(plan.evict.empty());
  ASSERT_EQ(plan.biases.size(), 2u);
  for (const cache::HeadPlan::Bias& bias : plan.biases) EXPECT_NEAR(bias.bias, 0, 1e-5);
}

// Every other one of 40 entries.
HeadEntriesOnHost EveryOther(const Head& head) {
  HeadEntriesOnHost stored;
  stored.n = 20;
  stored.key_dim = stored.value_dim = 2;
  stored.keys.resize(40);
  stored.biases.resize(20);
  for (size_t i = 0; i < 20; ++i) {
    stored.keys[i] = head.entries.keys[2 * i];
    stored.keys[20 + i] = head.entries.keys[40 + 2 * i];
    stored.values.push_back(head.entries.values[4 * i]);
    stored.values.push_back(head.entries.values[4 * i + 1]);
  }
  return stored;
}

// With half of the entries gone, fitted values bring the outputs closer to the targets.
TEST(RefitValues, MovesOutputsTowardsTargets) {
  const Head head(40, 64);
  const Targets targets = MakeTargets(Plain(), head.rows, head.entries);
  const HeadEntriesOnHost stored = EveryOther(head);
  const std::vector<float> values =
      RefitValues(Plain(), head.rows, stored, targets, 40, kernels::TensorType::kF32);
  ASSERT_EQ(values.size(), 40u);
  const auto error = [&](const std::vector<float>& of) {
    HeadEntriesOnHost one = stored;
    one.values = of;
    ReferenceRows rows = head.rows;
    for (int64_t& n : rows.n_visible) n = 20;
    const Targets found = MakeTargets(Plain(), rows, one);
    double sum = 0;
    for (size_t i = 0; i < found.outputs.size(); ++i) {
      sum += std::pow(found.outputs[i] - targets.outputs[i], 2);
    }
    return sum;
  };
  EXPECT_LT(error(values), 0.8 * error(stored.values));
}

// Three rows are fitted, the fourth checks. All rows are equal here, so that a fit of one fits all.
TEST(RefitValues, NeedsFourRows) {
  for (const int64_t n : {1, 3, 4}) {
    Head head(40, 0);
    for (int64_t i = 0; i < n; ++i) head.Observe(1);
    const Targets targets = MakeTargets(Plain(), head.rows, head.entries);
    const std::vector<float> values =
        RefitValues(Plain(), head.rows, EveryOther(head), targets, 40, kernels::TensorType::kF32);
    EXPECT_EQ(values.size(), n < 4 ? 0u : 40u) << n;
  }
}

// If nothing is missing, the values do not change by more than rounding.
TEST(RefitValues, EmptyWhereNothingIsMissing) {
  const Head head(10, 16);
  const Targets targets = MakeTargets(Plain(), head.rows, head.entries);
  const std::vector<float> values =
      RefitValues(Plain(), head.rows, head.entries, targets, 10, kernels::TensorType::kF32);
  double change = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    change = std::max(change, std::fabs(double{values[i]} - head.entries.values[i]));
  }
  EXPECT_LT(change, 1e-5);
}

}  // namespace
}  // namespace winnow::compression::methods
