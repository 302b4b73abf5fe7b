#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using Positions = std::vector<Position>;

constexpr int kDim = 4, kGroup = 2, kHeads = 2;
constexpr Position kN = 40;
constexpr size_t kBudget = 10;
constexpr int64_t kRows = 60;  // tokens of the replay

std::vector<float> Key(int, int head, Position p) {
  return testing::RandomVector({1, head, p}, kDim);
}
std::vector<float> Value(int, int head, Position p) {
  return testing::RandomVector({2, head, p}, kDim);
}
std::vector<float> Query(int, int head, Position p) {
  std::vector<float> query = testing::RandomVector({3, head, p}, kDim);
  for (float& x : query) x *= 3;
  return query;
}

double Weight(int head, Position query, Position key) {
  double dot = 0;
  const auto q = Query(0, head, query), k = Key(0, head / kGroup, key);
  for (size_t i = 0; i < kDim; ++i) dot += double{q[i]} * k[i];
  return std::exp(dot);
}

// A reference row: a query of the replay, whose tokens follow the prompt.
struct Row {
  int head;
  Position query;
};
std::vector<Row> References(int kv_head) {
  std::vector<Row> rows;
  for (Position query = kN; query < kN + kRows; ++query) {
    for (int head = kGroup * kv_head; head < kGroup * (kv_head + 1); ++head) {
      rows.push_back({head, query});
    }
  }
  return rows;
}

// Squared differences, summed over the reference rows, between attention over the stored entries
// and over all: of the mass (relative to the row's largest weight) and of the output.
struct Errors {
  double mass = 0, output = 0;
};
Errors OutputErrors(const Harness& h, int kv_head, bool biases) {
  Errors errors;
  const Positions kept = h.Kept(0, kv_head);
  for (const Row& row : References(kv_head)) {
    double all = 0, some = 0, largest = 0;
    std::vector<double> wanted(kDim, 0.0), found(kDim, 0.0);
    for (Position p = 0; p < kN; ++p) {
      const double weight = Weight(row.head, row.query, p);
      all += weight;
      largest = std::max(largest, weight);
      for (size_t i = 0; i < kDim; ++i) wanted[i] += weight * Value(0, kv_head, p)[i];
    }
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      const Slot slot = h.cache().order(0, kv_head)[rank];
      const float bias =
          biases ? float{h.cache().half_column(0, kv_head, 0)[static_cast<size_t>(slot)]} : 0;
      const double weight = Weight(row.head, row.query, kept[rank]) * std::exp(bias);
      some += weight;
      const auto value = h.Value(static_cast<int64_t>(rank), 0, kv_head);
      for (size_t i = 0; i < kDim; ++i) found[i] += weight * value[i];
    }
    errors.mass += std::pow((some - all) / largest, 2);
    for (size_t i = 0; i < kDim; ++i) {
      errors.output += std::pow(found[i] / some - wanted[i] / all, 2);
    }
  }
  return errors;
}

std::unique_ptr<Harness> Matched(const std::string& spec) {
  auto h = std::make_unique<Harness>(
      Make(methods::AttentionMatching(), spec),
      testing::HarnessConfig{
          .n_q_heads = kHeads * kGroup, .n_kv_heads = kHeads, .dim = kDim, .budget = kBudget});
  h->SetKeys(Key);
  h->SetValues(Value);
  h->SetQueries(Query);
  h->SetReplay(kRows, [](const testing::Cell&) { return 0.0; });
  h->Prefill(kN, [](const testing::Cell&) { return 0.0; });
  return h;
}

TEST(AttentionMatchingTest, ActsLikeAllEntries) {
  const auto plain = Matched("queries=60,biases=false,values=false");
  const auto biased = Matched("queries=60,values=false");
  const auto fitted = Matched("queries=60");
  for (int head = 0; head < kHeads; ++head) {
    EXPECT_EQ(fitted->Kept(0, head), plain->Kept(0, head));
    const Errors of_plain = OutputErrors(*plain, head, false);
    const Errors of_biased = OutputErrors(*biased, head, true);
    const Errors of_fitted = OutputErrors(*fitted, head, true);
    EXPECT_LT(of_biased.mass, of_plain.mass / 3) << "head " << head;
    EXPECT_LT(of_fitted.output, of_biased.output / 2) << "head " << head;
    for (const Half bias : fitted->cache().half_column(0, head, 0)) {
      EXPECT_LE(std::abs(float{bias}), 3);
    }
  }
}

// A prompt within the budget is not replayed and keeps its values.
TEST(AttentionMatchingTest, APromptThatFitsIsUntouched) {
  Harness h(Make(methods::AttentionMatching()), {.dim = kDim, .budget = 50});
  h.SetValues(Value);
  h.Prefill(40, [](const testing::Cell&) { return 0.0; });
  EXPECT_TRUE(h.plans().empty());
  EXPECT_EQ(h.Value(3), Value(0, 0, 3));
}

}  // namespace
}  // namespace winnow::compression
