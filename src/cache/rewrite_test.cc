// Biases, rewritten values, and entries removed from one layer.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "cache/cache.h"
#include "kernels/backends.h"

namespace winnow::cache {
namespace {

using kernels::Matrix;
using Floats = std::vector<float>;

// Two layers of two KV heads with one dimension. Token t has the keys t and 100 + t, and the values
// -t and -100 - t.
class RewriteTest : public ::testing::Test {
 protected:
  std::unique_ptr<Cache> Make() {
    return Cache::Make(*backend_,
                       {.shape = {.n_layers = 2, .n_kv_heads = 2, .key_dim = 1, .value_dim = 1},
                        .key_type = kernels::TensorType::kF32,
                        .value_type = kernels::TensorType::kF32,
                        .capacity = 64,
                        .storage = {.bias_column = 0},
                        .state = {.n_half_columns = 1}})
        .value();
  }
  void Append(Cache& cache, int layer, Position first, int n) {
    const auto storage = backend_->Allocate(4 * n * int64_t{sizeof(float)}).value();
    const Matrix k = {storage.get(), 0, n, 2, 2};
    const Matrix v = {storage.get(), 2 * n, n, 2, 2};
    Floats keys, values;
    std::vector<Position> positions;
    for (Position t = first; t < first + n; ++t) {
      keys.insert(keys.end(), {static_cast<float>(t), static_cast<float>(100 + t)});
      values.insert(values.end(), {static_cast<float>(-t), static_cast<float>(-100 - t)});
      positions.push_back(t);
    }
    backend_->Write(k, keys);
    backend_->Write(v, values);
    ASSERT_TRUE(cache.Append(layer, k, v, positions).has_value());
  }
  Floats ByRank(const Cache& cache, const kernels::HeadRows& rows, int layer, int head) {
    const auto order = cache.order(layer, head);
    Floats found(order.size());
    backend_->ReadRows(rows, order, found);
    return found;
  }
  Floats Values(const Cache& cache, int layer, int head) {
    return ByRank(cache, cache.values(layer, head), layer, head);
  }
  // Biases by rank, as attention sees them.
  static Floats Biases(const Cache& cache, int layer, int head) {
    const auto entries = cache.Entries(layer, 0);
    Floats found;
    if (entries.empty()) return found;
    for (const Slot slot : cache.order(layer, head)) {
      found.push_back(entries[static_cast<size_t>(head)].biases[static_cast<size_t>(slot)]);
    }
    return found;
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
};

TEST_F(RewriteTest, AttentionIsGivenBiasesOnlyWhereAPlanGaveSome) {
  const auto cache = Make();
  Append(*cache, 0, 0, 4);
  Append(*cache, 1, 0, 4);
  EXPECT_TRUE(cache->Entries(0, 1).empty());
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[1].biases = {{2, 0.5f}};
  cache->Apply(plan);
  EXPECT_EQ(Biases(*cache, 0, 0), (Floats{0, 0, 0, 0}));
  EXPECT_EQ(Biases(*cache, 0, 1), (Floats{0, 0, 0.5, 0}));
  EXPECT_TRUE(cache->Entries(1, 1).empty());
}

TEST_F(RewriteTest, BiasesMoveWithTheirEntries) {
  const auto cache = Make();
  Append(*cache, 0, 0, 5);
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[0].biases = {{4, 2}, {1, -1}};
  plan.heads[0].evict = {0, 2};
  cache->Apply(plan);
  EXPECT_EQ(ByRank(*cache, cache->keys(0, 0), 0, 0), (Floats{1, 3, 4}));
  EXPECT_EQ(Biases(*cache, 0, 0), (Floats{-1, 0, 2}));
  Append(*cache, 0, 5, 1);
  EXPECT_EQ(Biases(*cache, 0, 0), (Floats{-1, 0, 2, 0}));
  const auto copy = cache->Copy().value();
  EXPECT_EQ(Biases(*copy, 0, 0), (Floats{-1, 0, 2, 0}));
  cache->Clear();
  Append(*cache, 0, 0, 2);
  EXPECT_TRUE(cache->Entries(0, 1).empty());
}

TEST_F(RewriteTest, ASnapshotBringsBiasesBack) {
  const auto cache = Make();
  Append(*cache, 0, 0, 3);
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[0].biases = {{1, 3}};
  cache->Apply(plan);
  std::string bytes;
  cache->WriteLayer(0, bytes);
  const auto read = Make();
  ASSERT_TRUE(read->ReadLayer(0, std::as_bytes(std::span(bytes)), 3).has_value());
  EXPECT_EQ(Biases(*read, 0, 0), (Floats{0, 3, 0}));
}

TEST_F(RewriteTest, ValuesAreWrittenAfterTheMerges) {
  const auto cache = Make();
  Append(*cache, 0, 0, 4);
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[0].merges = {{.into = 3, .n_sources = 2}};
  plan.heads[0].sources = {{2, 0.5f, 0.5f}, {3, 0.5f, 0.5f}};
  plan.heads[0].rewrite = {0, 3};
  plan.heads[0].new_values = {7, 8};
  plan.heads[0].evict = {2};
  cache->Apply(plan);
  EXPECT_EQ(ByRank(*cache, cache->keys(0, 0), 0, 0), (Floats{0, 1, 2.5}));
  EXPECT_EQ(Values(*cache, 0, 0), (Floats{7, -1, 8}));
  EXPECT_EQ(Values(*cache, 0, 1), (Floats{-100, -101, -102, -103}));
}

TEST_F(RewriteTest, TruncateLayerDropsFromOneLayerAlone) {
  const auto cache = Make();
  for (const int layer : {0, 1}) Append(*cache, layer, 0, 6);
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[0].evict = {1};
  cache->Apply(plan);
  const int64_t before = cache->live_bytes();
  Append(*cache, 0, 6, 3);
  cache->TruncateLayer(0, 6);
  EXPECT_EQ(cache->live_bytes(), before);
  EXPECT_EQ(Values(*cache, 0, 0), (Floats{-0.0f, -2, -3, -4, -5}));
  EXPECT_EQ(Values(*cache, 0, 1).size(), 6u);
  EXPECT_EQ(cache->n_slots(1, 0), 6);
}

}  // namespace
}  // namespace winnow::cache
