// Rows gathered one after another while a cache keeps its size (placement/gather.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "cache/cache.h"
#include "cache/testing/checked_cache.h"
#include "gguf/tensor_type.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

using kernels::Matrix;
using testing::CheckedCache;
using testing::kShape;

// A cache that gathers its rows whenever a prompt was compressed, on a backend that really releases
// memory: rows released too early read as zeros.
struct OneThread {
  ThreadPool pool{1};
};
class GatheringCacheTest : private OneThread, public CheckedCache {
 protected:
  GatheringCacheTest()
      : CheckedCache(kernels::MakeCpuBackend({.pool = &pool, .target = ""}).value(),
                     /*gather_from_bytes=*/1) {}

  // Gathered rows lie behind all regions: checks the keys of the layer's first head.
  bool Gathered(int layer) const {
    const auto region = [](int dim) {
      return (200 * gguf::RowBytes(GetParam(), dim) + 4095) / 4096 * 4096;
    };
    const int64_t regions =
        kShape.n_layers * kShape.n_kv_heads * (region(kShape.key_dim) + region(kShape.value_dim));
    return cache_->Heads(layer)[0].keys_offset_bytes >= regions;
  }
  void AppendToAll(Position first, int n) {
    cache_->BeginCall(n == 1 ? Phase::kDecode : Phase::kPrefill, n);
    for (int layer = 0; layer < kShape.n_layers; ++layer) Append(layer, first, n);
  }
  void ApplyToAll(double share) {
    for (int layer = 0; layer < kShape.n_layers; ++layer) Apply(layer, share);
  }
  void ExpectAllGathered(bool gathered) {
    for (int layer = 0; layer < kShape.n_layers; ++layer) EXPECT_EQ(Gathered(layer), gathered);
    Verify();
  }
};

TEST_P(GatheringCacheTest, RowsComeTogetherInTheFirstStepAndGoBackForAPrompt) {
  AppendToAll(0, 150);
  AppendToAll(150, 1);
  ExpectAllGathered(false);  // nothing was evicted
  ApplyToAll(0.3);
  ExpectAllGathered(false);
  AppendToAll(151, 1);
  ExpectAllGathered(true);
  for (Position position = 152; position < 160; ++position) {
    Truncate(position - 1);  // so that it keeps its size
    AppendToAll(position, 1);
    ExpectAllGathered(true);
  }
  ApplyToAll(0.5);
  ExpectAllGathered(true);
  AppendToAll(160, 80);
  ExpectAllGathered(false);
  ApplyToAll(0.3);
  AppendToAll(240, 1);
  ExpectAllGathered(true);
}

TEST_P(GatheringCacheTest, ACacheThatGrowsGoesBackAndStays) {
  AppendToAll(0, 150);
  ApplyToAll(0.3);
  for (Position position = 150; position < 165; ++position) AppendToAll(position, 1);
  ExpectAllGathered(false);
  ApplyToAll(0.2);
  AppendToAll(165, 1);
  ExpectAllGathered(false);
  AppendToAll(166, 60);  // the next prompt
  ApplyToAll(0.4);
  AppendToAll(226, 1);
  ExpectAllGathered(true);
}

TEST_P(GatheringCacheTest, CopiesAreAsGathered) {
  AppendToAll(0, 150);
  ApplyToAll(0.3);
  for (const bool gathered : {false, true}) {
    ExpectAllGathered(gathered);
    auto copy = cache_->Copy().value();
    const auto before = expected_;
    AppendToAll(gathered ? 151 : 150, 1);
    ExpectAllGathered(true);
    std::swap(cache_, copy);
    const auto after = std::exchange(expected_, before);
    ExpectAllGathered(gathered);
    AppendToAll(160, 1);
    ExpectAllGathered(true);
    std::swap(cache_, copy);
    expected_ = after;
  }
  Verify();
}

TEST_P(GatheringCacheTest, NothingOfItIsLeftAfterClear) {
  AppendToAll(0, 150);
  ApplyToAll(0.3);
  AppendToAll(150, 1);
  ExpectAllGathered(true);
  cache_->Clear();
  for (auto& layer : expected_) {
    for (auto& entries : layer) entries.clear();
  }
  ExpectAllGathered(false);
  AppendToAll(0, 50);
  AppendToAll(50, 1);
  ExpectAllGathered(false);  // nothing of this prompt was evicted
}

TEST_P(GatheringCacheTest, RandomHistories) { RandomHistories(/*max_added=*/90); }

INSTANTIATE_TEST_SUITE_P(Types, GatheringCacheTest,
                         ::testing::Values(TensorType::kF16, TensorType::kQ8_0),
                         [](const auto& param) {
                           return std::string(gguf::GetTypeInfo(param.param).name);
                         });

// Large enough for huge pages, and for a sanitizer's own memory (3 MiB) not to matter.
TEST(CacheGather, KeepsRowsAndGivesMemoryBack) {
  constexpr int64_t kSlots = 8192, kBlock = 1024, kDim = 512, kEvery = 4;
  constexpr int64_t kBytes = kSlots * 2 * 2 * 2 * kDim * 4;  // 128 MiB: layers, heads, keys, values
  ThreadPool pool(1);
  const auto backend = kernels::MakeCpuBackend({.pool = &pool, .target = ""}).value();
  const auto rows = backend->Allocate(kBlock * 2 * kDim * 4).value();
  // Allocate the test's own buffers before counting memory.
  std::vector<float> values(kBlock * 2 * kDim);
  std::vector<float> found(kDim);
  backend->Write({rows.get(), 0, kBlock, 2 * kDim, 2 * kDim}, values);
  const int64_t before = ResidentBytes();
  const auto cache =
      Cache::Make(*backend,
                  {.shape = {.n_layers = 2, .n_kv_heads = 2, .key_dim = kDim, .value_dim = kDim},
                   .key_type = TensorType::kF32,
                   .value_type = TensorType::kF32,
                   .capacity = 1 << 20,
                   .gather_from_bytes = 1 << 20})
          .value();
  // Every number of a row is its position in the text.
  const auto append = [&](int64_t first, int64_t n) {
    std::vector<Position> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), static_cast<Position>(first));
    for (int64_t row = 0; row < n; ++row) {
      std::fill_n(values.begin() + row * 2 * kDim, 2 * kDim, static_cast<float>(first + row));
    }
    const Matrix k = {rows.get(), 0, n, 2 * kDim, 2 * kDim};
    backend->Write(k, std::span(values).first(static_cast<size_t>(n * 2 * kDim)));
    cache->BeginCall(n == 1 ? Phase::kDecode : Phase::kPrefill, n);
    for (int layer = 0; layer < 2; ++layer) {
      ASSERT_TRUE(cache->Append(layer, k, k, positions).has_value());
    }
  };
  const auto verify = [&] {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 2; ++head) {
        const kernels::HeadStore& store = cache->Heads(layer)[static_cast<size_t>(head)];
        for (int64_t slot = 0; slot < store.n_slots; ++slot) {
          const auto position =
              static_cast<float>(cache->positions(layer, head)[static_cast<size_t>(slot)]);
          for (const int64_t offset : {store.keys_offset_bytes, store.values_offset_bytes}) {
            backend->Read({store.keys, offset / 4 + slot * kDim, 1, kDim, kDim}, found);
            ASSERT_EQ(std::ranges::count(found, position), kDim) << layer << head << slot;
          }
        }
      }
    }
  };
  const auto compress = [&] {
    for (int layer = 0; layer < 2; ++layer) {
      Plan plan = {.layer = layer, .heads = std::vector<HeadPlan>(2)};
      for (HeadPlan& head : plan.heads) {
        for (Slot slot = 0; slot < cache->n_slots(layer, 0); ++slot) {
          if (slot % kEvery != 0) head.evict.push_back(slot);
        }
      }
      cache->Apply(plan);
    }
  };
  for (int64_t first = 0; first < kSlots; first += kBlock) append(first, kBlock);
  compress();
  const int64_t own_offset = cache->Heads(0)[0].keys_offset_bytes;
  append(kSlots, 1);
  EXPECT_NE(cache->Heads(0)[0].keys_offset_bytes, own_offset);
  EXPECT_LT(ResidentBytes() - before, kBytes / kEvery * 3 / 2);
  verify();
  append(kSlots + 1, kBlock);  // more rows than fit while gathered
  EXPECT_EQ(cache->Heads(0)[0].keys_offset_bytes, own_offset);
  EXPECT_LT(ResidentBytes() - before, (kBytes / kEvery + kBytes / 8) * 3 / 2);
  verify();
  compress();
  append(kSlots + 1 + kBlock, 1);
  EXPECT_NE(cache->Heads(0)[0].keys_offset_bytes, own_offset);
  verify();
  cache->Clear();
  EXPECT_LT(ResidentBytes() - before, kBytes / 8);
}

}  // namespace
}  // namespace winnow::cache
