#include "cache/cache.h"
#include "cache/testing/bytes_in_use.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine.h"
#include "base/thread_pool.h"
#include "cache/testing/checked_cache.h"
#include "gguf/tensor_type.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

using kernels::Matrix;
using testing::CheckedCache;
using testing::Entry;
using testing::kShape;

class CacheTest : public CheckedCache {};

TEST_P(CacheTest, HoldsWhatWasAppended) {
  Append(0, 0, 5);
  Append(1, 0, 5);
  Append(0, 5, 1);
  Verify();
}

TEST_P(CacheTest, ApplyKeepsTheSurvivorsInTextOrder) {
  Append(0, 0, 50);
  Apply(0, 0.3);
  Verify();
  Append(0, 50, 7);  // heads now have different lengths
  Verify();
  Apply(0, 0);
  Verify();
  Append(0, 57, 2);
  Verify();
}

TEST_P(CacheTest, OneEvictionMovesTheNewestIntoTheHole) {
  Append(0, 0, 10);
  const auto evict = [&](Slot slot) {
    Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kShape.n_kv_heads)};
    plan.heads[1].evict = {slot};
    const Position position = cache_->positions(0, 1)[static_cast<size_t>(slot)];
    std::erase_if(expected_[0][1], [&](const Entry& e) { return e.position == position; });
    cache_->Apply(plan);
  };
  evict(4);
  EXPECT_EQ(cache_->positions(0, 1)[4], 9);
  EXPECT_EQ(cache_->order(0, 1).back(), 4);
  Verify();
  evict(8);  // the last slot
  Verify();
  evict(4);  // the newest entry, in the middle of the slots
  Verify();
  evict(0);
  Verify();
}

TEST_P(CacheTest, RanksAreThePlacesOfReassignedPositions) {
  Append(0, 0, 30);
  Apply(0, 0.5);
  Append(0, 30, 2);
  EXPECT_TRUE(cache_->Entries(0, 2).empty());  // still rotated
  Unrotate(0);
  for (int head = 0; head < kShape.n_kv_heads; ++head) {
    const kernels::HeadEntries& entries = cache_->Entries(0, 2)[static_cast<size_t>(head)];
    const std::span<const Slot> order = cache_->order(0, head);
    for (size_t rank = 0; rank < order.size(); ++rank) {
      EXPECT_EQ(entries.positions[static_cast<size_t>(order[rank])], static_cast<int>(rank));
    }
    EXPECT_EQ(entries.query_position, static_cast<int>(order.size()) - 2);
  }
}

TEST_P(CacheTest, ACopyIsTheSameAndApart) {
  Append(0, 0, 50);
  Append(1, 0, 50);
  Apply(0, 0.4);
  auto copy = cache_->Copy().value();
  const auto before = expected_;
  Apply(1, 0.1);
  Append(0, 50, 9);
  Verify();
  std::swap(cache_, copy);
  const auto after = std::exchange(expected_, before);
  Verify();
  std::swap(cache_, copy);
  expected_ = after;
  Verify();
}

TEST_P(CacheTest, MergesUseTheRowsFromBefore) {
  Append(0, 0, 4);
  const auto floats = [&](const kernels::HeadRows& rows) {
    std::vector<float> all(static_cast<size_t>(4 * rows.dim));
    backend_->ReadRows(rows, std::vector<int32_t>{0, 1, 2, 3}, all);
    return all;
  };
  const std::vector<float> keys = floats(cache_->keys(0, 2));
  const std::vector<float> values = floats(cache_->values(0, 2));
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kShape.n_kv_heads)};
  plan.heads[2].merges = {{.into = 1, .n_sources = 2}, {.into = 2, .n_sources = 2}};
  plan.heads[2].sources = {{.row = 1, .key_weight = 0.25f, .value_weight = 1},
                           {.row = 3, .key_weight = 0.75f, .value_weight = 0.5f},
                           {.row = 2, .key_weight = 0.5f, .value_weight = 0.5f},
                           {.row = 1, .key_weight = 0.5f, .value_weight = 0.5f}};
  cache_->Apply(plan);
  const auto check = [&](const std::vector<float>& old, const std::vector<float>& now, int dim,
                         float a, float b) {
    const float tolerance = GetParam() == TensorType::kQ4_0 ? 0.12f : 0.01f;
    for (int i = 0; i < dim; ++i) {
      const auto at = [&](int row) { return old[static_cast<size_t>(row * dim + i)]; };
      EXPECT_NEAR(now[static_cast<size_t>(dim + i)], a * at(1) + b * at(3), tolerance);
      EXPECT_NEAR(now[static_cast<size_t>(2 * dim + i)], 0.5f * at(2) + 0.5f * at(1), tolerance);
      EXPECT_EQ(now[static_cast<size_t>(i)], at(0));
    }
  };
  check(keys, floats(cache_->keys(0, 2)), kShape.key_dim, 0.25f, 0.75f);
  check(values, floats(cache_->values(0, 2)), kShape.value_dim, 1, 0.5f);
}

TEST_P(CacheTest, TruncateGoesByPositionNotBySlot) {
  Append(0, 0, 40);
  Append(1, 0, 40);
  Apply(1, 0.5);
  Truncate(25);
  Verify();
  Truncate(0);
  Verify();
  EXPECT_EQ(cache_->live_bytes(), cache_->state_bytes());
}

TEST_P(CacheTest, RandomHistories) { RandomHistories(/*max_added=*/20); }

INSTANTIATE_TEST_SUITE_P(Types, CacheTest,
                         ::testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                           TensorType::kQ8_0, TensorType::kQ4_0),
                         [](const auto& param) {
                           return std::string(gguf::GetTypeInfo(param.param).name);
                         });

CacheConfig Config(TensorType type, int key_dim, int64_t capacity) {
  return {.shape = {.n_layers = 2, .n_kv_heads = 2, .key_dim = key_dim, .value_dim = 32},
          .key_type = type,
          .value_type = TensorType::kF16,
          .capacity = capacity};
}

TEST(CacheMake, RefusesTypesThatCannotHoldTheHeads) {
  const auto backend = kernels::MakeReferenceBackend();
  const auto odd = Cache::Make(*backend, Config(TensorType::kQ8_0, 24, 8));
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().message,
            "cache: keys of 24 elements per head cannot be stored as Q8_0, which needs a multiple "
            "of 32");
  const auto weight_type = Cache::Make(*backend, Config(TensorType::kQ6_K, 256, 8));
  ASSERT_FALSE(weight_type.has_value());
  EXPECT_EQ(weight_type.error().message,
            "cache: keys cannot be stored as Q6_K; supported: F32, F16, BF16, Q8_0, Q4_0");
}

TEST(CacheMake, RefusesCapacitiesBeyondTheSystem) {
  const auto backend = kernels::MakeReferenceBackend();
  for (const int64_t capacity : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    const auto cache = Cache::Make(*backend, Config(TensorType::kF16, 32, capacity));
    ASSERT_FALSE(cache.has_value()) << capacity;
    EXPECT_NE(cache.error().message.find("out of range"), std::string::npos);
  }
  // 2^31 tokens of 2^16 heads of 2^16 elements: more bytes than an int64_t holds.
  const auto huge = Cache::Make(
      *backend,
      {.shape = {.n_layers = 512, .n_kv_heads = 1 << 16, .key_dim = 1 << 16, .value_dim = 1 << 16},
       .capacity = std::numeric_limits<Slot>::max()});
  ASSERT_FALSE(huge.has_value());
  EXPECT_NE(huge.error().message.find("need more than 2^63 bytes"), std::string::npos)
      << huge.error().message;
}

TEST(CacheApply, GivesMemoryBack) {
  constexpr int64_t kSlots = 32768, kBlock = 1024, kDim = 128;
  constexpr int64_t kBytes = kSlots * 2 * 2 * kDim * 4;  // 64 MiB: 2 heads, keys and values
  ThreadPool pool(1);
  const auto backend = kernels::MakeCpuBackend({.pool = &pool, .target = ""}).value();
  const auto rows = backend->Allocate(kBlock * 2 * kDim * 4).value();
  const Matrix k = {rows.get(), 0, kBlock, 2 * kDim, 2 * kDim};
  backend->Write(k, std::vector<float>(kBlock * 2 * kDim, 1.0f));
  const int64_t before = ResidentBytes();
  const auto cache =
      Cache::Make(*backend,
                  {.shape = {.n_layers = 1, .n_kv_heads = 2, .key_dim = kDim, .value_dim = kDim},
                   .key_type = TensorType::kF32,
                   .value_type = TensorType::kF32,
                   .capacity = int64_t{1} << 24})  // 32 GiB of address space
          .value();
  EXPECT_LT(ResidentBytes() - before, kBytes / 16);
  std::vector<Position> positions(kBlock);
  for (int64_t first = 0; first < kSlots; first += kBlock) {
    std::iota(positions.begin(), positions.end(), static_cast<Position>(first));
    ASSERT_TRUE(cache->Append(0, k, k, positions).has_value());
  }
  EXPECT_GT(ResidentBytes() - before, kBytes * 15 / 16);
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  for (Slot slot = 0; slot < kSlots; ++slot) {
    if (slot != 0 && slot != 5 && slot != kSlots - 1) plan.heads[0].evict.push_back(slot);
    if (slot != 1) plan.heads[1].evict.push_back(slot);
  }
  cache->Apply(plan);
  EXPECT_LT(ResidentBytes() - before, kBytes / 8);
}

// Slots that share rows, as EMS keeps them.
TEST(CacheShared, RowsThatNobodyNamesAreFreed) {
  const auto backend = kernels::MakeReferenceBackend();
  CacheConfig config = Config(TensorType::kF32, 32, 16);
  config.storage.shared_rows = true;
  config.state = {.n_columns = 1};
  const auto cache = Cache::Make(*backend, config).value();
  const auto memory = backend->Allocate(64 * 6 * 4).value();
  const Matrix k = {memory.get(), 0, 6, 64, 64};
  std::vector<float> values(64 * 6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / 64);
  backend->Write(k, values);
  ASSERT_TRUE(cache->Append(0, k, k, std::vector<Position>{0, 1, 2, 3, 4, 5}).has_value());
  EXPECT_TRUE(cache->Entries(0, 1).empty()) << "entries are rows";
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(2)};
  plan.heads[0].shares = {{.slot = 1, .row = 4, .factor = 0.5f},
                          {.slot = 3, .row = 4, .factor = 2}};
  plan.heads[0].evict = {0};
  cache->Apply(plan);
  EXPECT_EQ(cache->n_slots(0, 0), 5);
  EXPECT_EQ(cache->n_rows(0, 0), 3);
  EXPECT_EQ(cache->n_rows(0, 1), 6);
  const kernels::HeadEntries& entries = cache->Entries(0, 1)[0];
  const std::vector<float> expected_value = {4, 2, 4, 4, 5};
  const std::vector<float> expected_factor = {0.5f, 1, 2, 1, 1};
  for (size_t rank = 0; rank < 5; ++rank) {
    const auto slot = static_cast<size_t>(cache->order(0, 0)[rank]);
    std::vector<float> row(32);
    backend->ReadRows(cache->keys(0, 0), std::vector<Slot>{entries.short_rows[slot]}, row);
    EXPECT_EQ(row[7], expected_value[rank]);
    EXPECT_EQ(entries.factors[slot], expected_factor[rank]);
  }
  EXPECT_EQ(cache->live_bytes(0, 0), 3 * (32 * 4 + 32 * 2) + 5 * (8 + 4));
  const auto copy = cache->Copy().value();
  const std::span<const kernels::HeadEntries> copied = copy->Entries(0, 1);
  ASSERT_EQ(copied.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(copied[0].short_rows, entries.short_rows));
  cache->Clear();
  ASSERT_TRUE(cache->Append(0, k, k, std::vector<Position>{0, 1, 2, 3, 4, 5}).has_value());
  EXPECT_TRUE(cache->Entries(0, 1).empty());
}

// After a long prompt no list keeps the prompt's length.
TEST(CacheShared, TheTablesShrinkToo) {
  if (testing::BytesInUse() < 0) GTEST_SKIP() << "skipped: the allocator does not tell";
  constexpr int64_t kSlots = 1 << 16;
  constexpr int kHeads = 8;
  const auto backend = kernels::MakeReferenceBackend();
  const auto cache =
      Cache::Make(*backend,
                  {.shape = {.n_layers = 1, .n_kv_heads = kHeads, .key_dim = 1, .value_dim = 1},
                   .capacity = kSlots,
                   .storage = {.shared_rows = true},
                   .state = {.n_columns = 1}})
          .value();
  const auto memory = backend->Allocate(kSlots * kHeads * 4).value();
  const Matrix k = {memory.get(), 0, kSlots, kHeads, kHeads};
  std::vector<Position> positions(kSlots);
  std::iota(positions.begin(), positions.end(), 0);
  const int64_t before = testing::BytesInUse();
  ASSERT_TRUE(cache->Append(0, k, k, positions).has_value());
  constexpr int64_t kPerSlot = 2 + 2 + 4 + 8;  // row, factor and count, column
  EXPECT_GT(testing::BytesInUse() - before, kSlots * kHeads * kPerSlot);
  {
    Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kHeads)};
    for (HeadPlan& head : plan.heads) {
      for (Slot slot = 5; slot < kSlots; ++slot) head.evict.push_back(slot);
    }
    cache->Apply(plan);
  }
  // Buffers of one head stay for the next plan, until the next call.
  EXPECT_LT(testing::BytesInUse() - before, kSlots * kPerSlot);
  cache->BeginCall(Phase::kDecode, 1);
  EXPECT_LT(testing::BytesInUse() - before, 64 << 10);
}

TEST(CacheCapped, DistancesStopAtTheCap) {
  const auto backend = kernels::MakeReferenceBackend();
  CacheConfig config = Config(TensorType::kF32, 32, 16);
  config.storage.positions = PositionMode::kCapped;
  config.storage.distance_cap = 10;
  const auto cache = Cache::Make(*backend, config).value();
  const auto memory = backend->Allocate(64 * 4 * 4).value();
  const Matrix k = {memory.get(), 0, 4, 64, 64};
  ASSERT_TRUE(cache->Append(0, k, k, std::vector<Position>{0, 1, 25, 30}).has_value());
  const auto angles = backend->Allocate(31 * 2 * 4).value();
  const Matrix table = {angles.get(), 0, 31, 2, 2};
  backend->Write(table, std::vector<float>(62, 1.0f));
  cache->Unrotate(0, {.table = table, .n_rotated = 2, .interleaved = false});
  const kernels::HeadEntries& entries = cache->Entries(0, 1)[0];
  EXPECT_EQ(entries.query_position, 10);
  EXPECT_EQ(std::vector<int32_t>(entries.positions.begin(), entries.positions.end()),
            (std::vector<int32_t>{0, 0, 5, 10}));
}

TEST(CacheCopies, NeighbouringHeadsStoreTheSameAndLoseTheirOwn) {
  const auto backend = kernels::MakeReferenceBackend();
  CacheConfig config = Config(TensorType::kF32, 32, 16);
  config.shape.n_kv_heads = 4;
  config.n_copies = 2;
  const auto cache = Cache::Make(*backend, config).value();
  const auto rows = backend->Allocate(2 * 3 * 64 * 4).value();
  const Matrix k = {rows.get(), 0, 3, 64, 64};
  const Matrix v = {rows.get(), 3 * 64, 3, 64, 64};
  std::vector<float> numbers(3 * 64);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  backend->Write(k, numbers);
  std::iota(numbers.begin(), numbers.end(), 1000.0f);
  backend->Write(v, numbers);
  ASSERT_TRUE(cache->Append(0, k, v, std::vector<Position>{0, 1, 2}).has_value());
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(4)};
  plan.heads[1].evict = {0};
  cache->Apply(plan);
  EXPECT_EQ(cache->n_slots(0, 0), 3);
  EXPECT_EQ(cache->n_slots(0, 1), 2);
  for (int head = 0; head < 4; ++head) {
    for (Slot slot = 0; slot < cache->n_slots(0, head); ++slot) {
      const Position position = cache->positions(0, head)[static_cast<size_t>(slot)];
      std::vector<float> key(32), value(32);
      backend->ReadRows(cache->keys(0, head), std::span(&slot, 1), key);
      backend->ReadRows(cache->values(0, head), std::span(&slot, 1), value);
      const auto first = static_cast<float>(position * 64 + head / 2 * 32);
      EXPECT_EQ(key[0], first);
      EXPECT_EQ(value[31], 1000 + first + 31);
    }
  }
  EXPECT_EQ(cache->live_bytes(), (4 * 3 - 1) * 32 * (4 + 2));
}

TEST(CacheAppend, SaysWhenItIsFull) {
  const auto backend = kernels::MakeReferenceBackend();
  const auto cache = Cache::Make(*backend, Config(TensorType::kF16, 32, 4)).value();
  const auto rows = backend->Allocate(64 * 3 * 4).value();
  const Matrix k = {rows.get(), 0, 3, 64, 64};
  ASSERT_TRUE(cache->Append(1, k, k, std::vector<Position>{0, 1, 2}).has_value());
  const auto full = cache->Append(1, k, k, std::vector<Position>{3, 4, 5});
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().message, "cache: full: layer 1 holds 3 of 4 entries, 3 more do not fit");
  EXPECT_EQ(cache->n_slots(1, 0), 3);
  EXPECT_TRUE(cache->Append(1, k.Rows(0, 1), k.Rows(0, 1), std::vector<Position>{3}).has_value());
}

}  // namespace
}  // namespace winnow::cache
