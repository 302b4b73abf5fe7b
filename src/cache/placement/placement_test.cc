#include "cache/placement/placement.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backends.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

constexpr int kLayers = 2, kHeads = 2, kDim = 4;
constexpr int64_t kCapacity = 2048;
constexpr int64_t kRegion = kCapacity * kDim * 4;  // bytes of one head's keys, or of its values

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest()
      : backend_(kernels::MakeReferenceBackend()),
        placement_(Placement::Make(*backend_, config_).value()) {}

  // Adds n rows to every head; every number of a row is the row's number.
  void Append(Phase phase, int64_t n) {
    const auto storage = backend_->Allocate(n * kHeads * kDim * 4).value();
    const kernels::Matrix rows = {storage.get(), 0, n, kHeads * kDim, kHeads * kDim};
    std::vector<float> values;
    for (int64_t row = 0; row < n; ++row) {
      values.insert(values.end(), kHeads * kDim, static_cast<float>(next_++));
    }
    backend_->Write(rows, values);
    placement_->BeginCall(phase, n);
    for (int layer = 0; layer < kLayers; ++layer) placement_->Append(layer, rows, rows);
  }
  void Shrink(int64_t n_rows) {
    for (int layer = 0; layer < kLayers; ++layer) {
      for (size_t head = 0; head < kHeads; ++head) placement_->Shrink(layer, head, n_rows);
    }
  }
  static std::vector<float> Rows(const Placement& placement, kernels::Backend& backend,
                                 std::vector<int32_t> rows) {
    std::vector<float> found(rows.size() * kDim);
    backend.ReadRows(placement.values(1, 1), rows, found);
    std::vector<float> first;
    for (size_t i = 0; i < rows.size(); ++i) first.push_back(found[i * kDim]);
    return first;
  }
  std::vector<float> Rows(std::vector<int32_t> rows) {
    return Rows(*placement_, *backend_, std::move(rows));
  }
  bool Gathered() const {
    return placement_->stores(0)[0].keys_offset_bytes >= 2 * kLayers * kHeads * kRegion;
  }

  CacheConfig config_ = {
      .shape = {.n_layers = kLayers, .n_kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim},
      .key_type = TensorType::kF32,
      .value_type = TensorType::kF32,
      .capacity = kCapacity,
      .gather_from_bytes = 1};
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Placement> placement_;
  int next_ = 0;
};

TEST_F(PlacementTest, EveryHeadHasARegionAsLongAsTheCapacity) {
  EXPECT_EQ(placement_->row_bytes(0), 2 * kDim * 4);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (size_t head = 0; head < kHeads; ++head) {
      const int64_t first = 2 * layer * kHeads * kRegion + static_cast<int64_t>(head) * kRegion;
      EXPECT_EQ(placement_->stores(layer)[head].keys_offset_bytes, first);
      EXPECT_EQ(placement_->stores(layer)[head].values_offset_bytes, first + kHeads * kRegion);
    }
  }
}

TEST_F(PlacementTest, RowsMoveMergeAndGo) {
  Append(Phase::kPrefill, 100);
  Moves moves;
  moves.FillHoles(100, std::vector<int32_t>{3, 98});
  placement_->Move(1, 1, moves);
  EXPECT_FALSE(placement_->Shrink(1, 1, 98)) << "two rows are soon taken again";
  EXPECT_EQ(Rows({2, 3, 97}), (std::vector<float>{2, 99, 97}));
  HeadPlan plan;
  plan.merges = {{.into = 2, .n_sources = 2}};
  plan.sources = {{.row = 4, .key_weight = 1, .value_weight = 0.5f},
                  {.row = 6, .key_weight = 0, .value_weight = 2}};
  placement_->Merge(1, 1, plan);
  EXPECT_EQ(Rows({2, 4, 6}), (std::vector<float>{14, 4, 6}));
  EXPECT_TRUE(placement_->Shrink(1, 1, 10));
  EXPECT_EQ(placement_->n_rows(1, 1), 10);
  EXPECT_EQ(placement_->n_rows(0, 1), 100);
}

TEST_F(PlacementTest, APromptOfOneTokenIsNoStep) {
  Append(Phase::kPrefill, 200);
  Shrink(100);
  Append(Phase::kPrefill, 1);
  EXPECT_FALSE(Gathered());
  Append(Phase::kDecode, 1);
  EXPECT_TRUE(Gathered());
  EXPECT_EQ(Rows({0, 99, 100, 101}), (std::vector<float>{0, 99, 200, 201}));
  Append(Phase::kDecode, 20);  // more rows than fit while gathered
  EXPECT_FALSE(Gathered());
  EXPECT_EQ(Rows({0, 99, 100, 101, 121}), (std::vector<float>{0, 99, 200, 201, 221}));
  // The cache has outgrown its size: it is not gathered again before the next prompt.
  Shrink(50);
  Append(Phase::kDecode, 1);
  EXPECT_FALSE(Gathered());
  Append(Phase::kPrefill, 1);
  Append(Phase::kDecode, 1);
  EXPECT_TRUE(Gathered());
}

TEST_F(PlacementTest, ACopyHasTheRowsAndIsApart) {
  Append(Phase::kPrefill, 200);
  Shrink(100);
  Append(Phase::kDecode, 1);
  const auto copy = Placement::Make(*backend_, config_).value();
  copy->CopyFrom(*placement_);
  EXPECT_EQ(copy->stores(0)[1].keys_offset_bytes, placement_->stores(0)[1].keys_offset_bytes);
  Shrink(0);
  placement_->Clear();
  Append(Phase::kPrefill, 1);
  EXPECT_EQ(Rows({0}), (std::vector<float>{201}));
  EXPECT_EQ(copy->n_rows(1, 1), 101);
  EXPECT_EQ(Rows(*copy, *backend_, {0, 50, 100}), (std::vector<float>{0, 50, 200}));
}

// Layers of different shapes keep their rows when they are gathered and moved back.
TEST(Placement, LayersMayDiffer) {
  const auto backend = kernels::MakeReferenceBackend();
  const std::vector<LayerShape> layers = {{.n_kv_heads = 1, .key_dim = 4, .value_dim = 8},
                                          {.n_kv_heads = 3, .key_dim = 2, .value_dim = 4}};
  const auto placement = Placement::Make(*backend, {.shape = MakeShape(layers),
                                                    .key_type = TensorType::kF32,
                                                    .value_type = TensorType::kF32,
                                                    .capacity = kCapacity,
                                                    .gather_from_bytes = 1})
                             .value();
  EXPECT_EQ(placement->row_bytes(0), 4 * (4 + 8));
  EXPECT_EQ(placement->row_bytes(1), 4 * (2 + 4));
  const int64_t layer_1 = kCapacity * 4 * (4 + 8);
  EXPECT_EQ(placement->stores(1)[2].keys_offset_bytes, layer_1 + 2 * kCapacity * 4 * 2);
  EXPECT_EQ(placement->stores(1)[2].values_offset_bytes, layer_1 + kCapacity * 4 * (3 * 2 + 2 * 4));

  // Every number of row i is i.
  int next = 0;
  const auto append = [&](Phase phase, int64_t n) {
    placement->BeginCall(phase, n);
    for (int l = 0; l < 2; ++l) {
      const LayerShape& shape = layers[static_cast<size_t>(l)];
      const auto make = [&](int64_t cols, std::unique_ptr<kernels::Storage>& storage) {
        storage = backend->Allocate(n * cols * 4).value();
        std::vector<float> values;
        for (int64_t row = 0; row < n; ++row) {
          values.insert(values.end(), static_cast<size_t>(cols), static_cast<float>(next + row));
        }
        const kernels::Matrix matrix = {storage.get(), 0, n, cols, cols};
        backend->Write(matrix, values);
        return matrix;
      };
      std::unique_ptr<kernels::Storage> keys, values;
      const kernels::Matrix k = make(shape.n_kv_heads * shape.key_dim, keys);
      placement->Append(l, k, make(shape.n_kv_heads * shape.value_dim, values));
    }
    next += static_cast<int>(n);
  };
  const auto expect_rows = [&](const std::vector<int32_t>& rows, const std::vector<float>& found) {
    for (int l = 0; l < 2; ++l) {
      for (size_t head = 0; head < placement->stores(l).size(); ++head) {
        for (const kernels::HeadRows& of : {placement->keys(l, head), placement->values(l, head)}) {
          std::vector<float> read(rows.size() * static_cast<size_t>(of.dim));
          backend->ReadRows(of, rows, read);
          for (size_t i = 0; i < read.size(); ++i) {
            ASSERT_EQ(read[i], found[i / static_cast<size_t>(of.dim)]) << l << " " << head;
          }
        }
      }
    }
  };
  append(Phase::kPrefill, 200);
  for (int l = 0; l < 2; ++l) {
    for (size_t head = 0; head < placement->stores(l).size(); ++head) {
      placement->Shrink(l, head, 100);
    }
  }
  append(Phase::kDecode, 1);
  EXPECT_GE(placement->stores(1)[0].keys_offset_bytes, layer_1 + 3 * kCapacity * 4 * (2 + 4));
  expect_rows({0, 99, 100}, {0, 99, 200});
  append(Phase::kDecode, 20);  // more than fit while gathered: back to their regions
  EXPECT_EQ(placement->stores(1)[0].keys_offset_bytes, layer_1);
  expect_rows({0, 99, 100, 120}, {0, 99, 200, 220});
}

}  // namespace
}  // namespace winnow::cache
