#include "cache/cache.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "gguf/tensor_type.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

using kernels::Matrix;

constexpr CacheShape kShape = {.n_layers = 2, .n_kv_heads = 3, .key_dim = 32, .value_dim = 64};

// One entry of one head as the cache must hold it: stored bytes, compared as 16-bit words.
struct Entry {
  Position position = 0;
  std::vector<uint16_t> key;
  std::vector<uint16_t> value;
  bool operator==(const Entry&) const = default;
};

std::vector<uint16_t> Stored(TensorType type, std::span<const float> values) {
  const int64_t n_bytes = gguf::RowBytes(type, static_cast<int64_t>(values.size()));
  std::vector<uint16_t> words(static_cast<size_t>(n_bytes) / 2);
  kernels::Quantize(type, values, std::as_writable_bytes(std::span(words)));
  return words;
}

// A cache, and next to it what should be in it.
class CacheTest : public ::testing::TestWithParam<TensorType> {
 protected:
  CacheTest() : CacheTest(kernels::MakeReferenceBackend(), /*gather_from_bytes=*/0) {}
  CacheTest(std::unique_ptr<kernels::Backend> backend, int64_t gather_from_bytes)
      : backend_(std::move(backend)) {
    auto cache = Cache::Make(*backend_,
                             {.shape = kShape,
                              .key_type = GetParam(),
                              .value_type = GetParam(),
                              .capacity = 200,
                              .positions = PositionMode::kReassigned,
                              .state = {.n_columns = 2, .n_head_numbers = 1, .n_layer_numbers = 3},
                              .gather_from_bytes = gather_from_bytes});
    EXPECT_TRUE(cache.has_value());
    cache_ = std::move(cache).value();
    expected_.resize(kShape.n_layers, std::vector<std::vector<Entry>>(kShape.n_kv_heads));
    rows_ = backend_->Allocate(200 * kShape.n_kv_heads * (kShape.key_dim + kShape.value_dim) * 4)
                .value();
  }

  void Append(int layer, Position first, int n) {
    const int64_t key_cols = kShape.n_kv_heads * kShape.key_dim;
    const int64_t value_cols = kShape.n_kv_heads * kShape.value_dim;
    const Matrix k = {rows_.get(), 0, n, key_cols, key_cols};
    const Matrix v = {rows_.get(), n * key_cols, n, value_cols, value_cols};
    std::vector<float> keys(static_cast<size_t>(n * key_cols));
    std::vector<float> values(static_cast<size_t>(n * value_cols));
    for (float& x : keys) x = static_cast<float>(rng_.Uniform() - 0.5);
    for (float& x : values) x = static_cast<float>(rng_.Uniform() - 0.5);
    backend_->Write(k, keys);
    backend_->Write(v, values);
    std::vector<Position> positions;
    for (int i = 0; i < n; ++i) {
      positions.push_back(first + i);
      for (int head = 0; head < kShape.n_kv_heads; ++head) {
        const auto key = std::span(keys).subspan(
            static_cast<size_t>(i * key_cols + head * kShape.key_dim), kShape.key_dim);
        const auto value = std::span(values).subspan(
            static_cast<size_t>(i * value_cols + head * kShape.value_dim), kShape.value_dim);
        expected_[layer][head].push_back(
            {first + i, Stored(GetParam(), key), Stored(GetParam(), value)});
      }
    }
    ASSERT_TRUE(cache_->Append(layer, k, v, positions).has_value());
    // The state of an entry: something only it can have.
    for (int head = 0; head < kShape.n_kv_heads; ++head) {
      const std::span<double> column = cache_->column(layer, head, 1);
      const auto n_slots = static_cast<size_t>(cache_->n_slots(layer, head));
      for (size_t slot = n_slots - static_cast<size_t>(n); slot < n_slots; ++slot) {
        EXPECT_EQ(column[slot], 0);
        column[slot] = 3.0 * cache_->positions(layer, head)[slot] + head;
      }
    }
  }

  // Keeps every entry with the given probability, each head on its own; plans name the evicted in
  // random order.
  void Apply(int layer, double share) {
    Plan plan = {.layer = layer, .heads = {}};
    for (int head = 0; head < kShape.n_kv_heads; ++head) {
      std::vector<Entry>& entries = expected_[layer][head];
      std::vector<Entry> kept;
      HeadPlan& head_plan = plan.heads.emplace_back();
      for (size_t rank = 0; rank < entries.size(); ++rank) {
        if (rng_.Uniform() >= share) {
          const size_t place = rng_.Below(static_cast<int>(head_plan.evict.size()) + 1);
          head_plan.evict.insert(head_plan.evict.begin() + static_cast<ptrdiff_t>(place),
                                 cache_->order(layer, head)[rank]);
        } else {
          kept.push_back(entries[rank]);
        }
      }
      entries = kept;
    }
    cache_->Apply(plan);
  }

  // With angles of zero, so that the rows stay what they are.
  void Unrotate(int layer) {
    const auto memory = backend_->Allocate(64 * 4).value();
    std::vector<float> table(64, 0.0f);
    for (size_t row = 0; row < 32; ++row) table[2 * row] = 1;
    const Matrix rows = {memory.get(), 0, 32, 2, 2};
    backend_->Write(rows, table);
    cache_->Unrotate(layer, {.table = rows, .n_rotated = 2, .interleaved = false});
    EXPECT_FALSE(cache_->keys_rotated(layer));
  }

  void Truncate(Position position) {
    for (auto& layer : expected_) {
      for (auto& entries : layer) {
        std::erase_if(entries, [&](const Entry& entry) { return entry.position >= position; });
      }
    }
    cache_->Truncate(position);
  }

  int RoomLeft(int layer) const {
    int64_t longest = 0;
    for (int head = 0; head < kShape.n_kv_heads; ++head) {
      longest = std::max(longest, cache_->n_slots(layer, head));
    }
    return static_cast<int>(cache_->capacity() - longest);
  }

  void RandomHistories(int most_added) {
    for (int history = 0; history < 30; ++history) {
      std::vector<Position> end(kShape.n_layers, 0);
      for (int step = 0; step < 10; ++step) {
        const int layer = static_cast<int>(rng_.Below(kShape.n_layers));
        switch (rng_.Below(5)) {
          case 0:
          case 1: {
            const int n = std::min(static_cast<int>(rng_.Below(most_added)), RoomLeft(layer));
            Append(layer, end[static_cast<size_t>(layer)], n);
            end[static_cast<size_t>(layer)] += n;
            break;
          }
          case 2:
            Apply(layer, rng_.Uniform());
            break;
          case 3: {
            const Position position = static_cast<Position>(rng_.Below(60));
            Truncate(position);
            for (Position& layer_end : end) layer_end = std::min(layer_end, position);
            break;
          }
          case 4:  // a step of decode
            if (RoomLeft(layer) > 0) Append(layer, end[static_cast<size_t>(layer)]++, 1);
            break;
        }
        Verify();
        if (HasFatalFailure()) return;
      }
      cache_->Clear();
      for (auto& layer : expected_) {
        for (auto& entries : layer) entries.clear();
      }
      Verify();
    }
  }

  std::vector<uint16_t> ReadBytes(kernels::Storage* storage, int64_t offset, int64_t n_bytes) {
    // Rows of a cache type are whole 16-bit words; reading goes by floats, so a word before or
    // after may come along.
    const int64_t first = offset / 4;
    const int64_t n = (offset + n_bytes + 3) / 4 - first;
    std::vector<float> floats(static_cast<size_t>(n));
    backend_->Read({storage, first, 1, n, n}, floats);
    std::vector<uint16_t> words;
    for (const float x : floats) {
      const uint32_t bits = std::bit_cast<uint32_t>(x);
      words.push_back(static_cast<uint16_t>(bits));
      words.push_back(static_cast<uint16_t>(bits >> 16));
    }
    const auto begin = words.begin() + (offset % 4) / 2;
    return {begin, begin + n_bytes / 2};
  }

  void Verify() {
    const int64_t key_bytes = gguf::RowBytes(GetParam(), kShape.key_dim);
    const int64_t value_bytes = gguf::RowBytes(GetParam(), kShape.value_dim);
    int64_t n_live = 0;
    for (int layer = 0; layer < kShape.n_layers; ++layer) {
      for (int head = 0; head < kShape.n_kv_heads; ++head) {
        const std::vector<Entry>& entries = expected_[layer][head];
        const int64_t n = static_cast<int64_t>(entries.size());
        n_live += n;
        const kernels::HeadStore& store = cache_->Heads(layer)[static_cast<size_t>(head)];
        ASSERT_EQ(cache_->n_slots(layer, head), n);
        ASSERT_EQ(store.n_slots, n);
        ASSERT_EQ(cache_->positions(layer, head).size(), entries.size());
        ASSERT_EQ(cache_->order(layer, head).size(), entries.size());
        for (int64_t i = 0; i < n; ++i) {
          const Slot slot = cache_->order(layer, head)[static_cast<size_t>(i)];
          const Entry found = {
              cache_->positions(layer, head)[static_cast<size_t>(slot)],
              ReadBytes(store.keys, store.keys_offset_bytes + slot * key_bytes, key_bytes),
              ReadBytes(store.values, store.values_offset_bytes + slot * value_bytes, value_bytes)};
          ASSERT_EQ(found, entries[static_cast<size_t>(i)]) << layer << " " << head << " " << i;
          ASSERT_EQ(cache_->column(layer, head, 1)[static_cast<size_t>(slot)],
                    3.0 * found.position + head);
        }
      }
    }
    EXPECT_EQ(cache_->bytes_per_slot(), key_bytes + value_bytes);
    const int64_t state_bytes = 8 * (2 * n_live + kShape.n_layers * (kShape.n_kv_heads + 3));
    EXPECT_EQ(cache_->live_bytes(), n_live * (key_bytes + value_bytes) + state_bytes);
    EXPECT_EQ(cache_->state_bytes(), state_bytes);
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<kernels::Storage> rows_;
  std::vector<std::vector<std::vector<Entry>>> expected_;  // [layer][head], in text order
  Rng rng_{7};
};

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
  evict(8);  // the last slot itself
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

TEST_P(CacheTest, RandomHistories) { RandomHistories(/*most_added=*/20); }

INSTANTIATE_TEST_SUITE_P(Types, CacheTest,
                         ::testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                           TensorType::kQ8_0, TensorType::kQ4_0),
                         [](const auto& param) {
                           return std::string(gguf::InfoOf(param.param).name);
                         });

// A cache whose rows are put one after another whenever a prompt was compressed, in memory that is
// really given back: what was released too early reads as zeros.
struct OneThread {
  ThreadPool pool{1};
};
class GatheringCacheTest : private OneThread, public CacheTest {
 protected:
  GatheringCacheTest()
      : CacheTest(kernels::MakeCpuBackend({.pool = &pool, .target = ""}).value(),
                  /*gather_from_bytes=*/1) {}

  // Keys of the first head of a layer lie behind all regions.
  bool Gathered(int layer) const {
    const auto region = [](int dim) {
      return (200 * gguf::RowBytes(GetParam(), dim) + 4095) / 4096 * 4096;
    };
    const int64_t regions =
        kShape.n_layers * kShape.n_kv_heads * (region(kShape.key_dim) + region(kShape.value_dim));
    return cache_->Heads(layer)[0].keys_offset_bytes >= regions;
  }
  void AppendToAll(Position first, int n) {
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
    Truncate(position - 1);  // so that it stays at its size
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

TEST_P(GatheringCacheTest, RandomHistories) { RandomHistories(/*most_added=*/90); }

INSTANTIATE_TEST_SUITE_P(Types, GatheringCacheTest,
                         ::testing::Values(TensorType::kF16, TensorType::kQ8_0),
                         [](const auto& param) {
                           return std::string(gguf::InfoOf(param.param).name);
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
  // 2^31 tokens of 2^16 heads of 2^16 elements: more bytes than an int64_t counts.
  const auto huge = Cache::Make(
      *backend,
      {.shape = {.n_layers = 512, .n_kv_heads = 1 << 16, .key_dim = 1 << 16, .value_dim = 1 << 16},
       .capacity = std::numeric_limits<Slot>::max()});
  ASSERT_FALSE(huge.has_value());
  EXPECT_NE(huge.error().message.find("need more than 2^63 bytes"), std::string::npos)
      << huge.error().message;
}

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
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

// Slots of a table that share rows: what EMS keeps.
// Large enough for large pages.
TEST(CacheGather, KeepsRowsAndGivesMemoryBack) {
  constexpr int64_t kSlots = 8192, kBlock = 1024, kDim = 128, kEvery = 4;
  constexpr int64_t kBytes = kSlots * 2 * 2 * 2 * kDim * 4;  // 32 MiB: layers, heads, keys, values
  ThreadPool pool(1);
  const auto backend = kernels::MakeCpuBackend({.pool = &pool, .target = ""}).value();
  const auto rows = backend->Allocate(kBlock * 2 * kDim * 4).value();
  // Memory of the test's own is taken once: a sanitizer keeps what is given back.
  std::vector<float> values(kBlock * 2 * kDim);
  std::vector<float> found(kDim);
  const int64_t before = ResidentBytes();
  const auto cache =
      Cache::Make(*backend,
                  {.shape = {.n_layers = 2, .n_kv_heads = 2, .key_dim = kDim, .value_dim = kDim},
                   .key_type = TensorType::kF32,
                   .value_type = TensorType::kF32,
                   .capacity = 1 << 20,
                   .gather_from_bytes = 1 << 20})
          .value();
  // A row says where it stands in the text.
  const auto append = [&](int64_t first, int64_t n) {
    std::vector<Position> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), static_cast<Position>(first));
    for (int64_t row = 0; row < n; ++row) {
      std::fill_n(values.begin() + row * 2 * kDim, 2 * kDim, static_cast<float>(first + row));
    }
    const Matrix k = {rows.get(), 0, n, 2 * kDim, 2 * kDim};
    backend->Write(k, std::span(values).first(static_cast<size_t>(n * 2 * kDim)));
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
  append(kSlots + 1, kBlock);  // too many
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

TEST(CacheShared, RowsThatNobodyNamesAreFreed) {
  const auto backend = kernels::MakeReferenceBackend();
  CacheConfig config = Config(TensorType::kF32, 32, 16);
  config.shared_rows = true;
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
    backend->ReadRows(cache->keys(0, 0), entries.rows.subspan(slot, 1), row);
    EXPECT_EQ(row[7], expected_value[rank]);
    EXPECT_EQ(entries.factors[slot], expected_factor[rank]);
  }
  EXPECT_EQ(cache->live_bytes(0, 0), 3 * (32 * 4 + 32 * 2) + 5 * (8 + 8));
  const auto copy = cache->Copy().value();
  const std::span<const kernels::HeadEntries> copied = copy->Entries(0, 1);
  ASSERT_EQ(copied.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(copied[0].rows, entries.rows));
  cache->Clear();
  ASSERT_TRUE(cache->Append(0, k, k, std::vector<Position>{0, 1, 2, 3, 4, 5}).has_value());
  EXPECT_TRUE(cache->Entries(0, 1).empty());
}

// What the allocator has handed out and not got back; -1 where it does not say.
int64_t BytesInUse() {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
#endif
  return -1;
}

// After a prompt no list is as long as the prompt was.
TEST(CacheShared, TheTablesShrinkToo) {
  if (BytesInUse() < 0) GTEST_SKIP() << "skipped: the allocator does not tell";
  constexpr int64_t kSlots = 1 << 16;
  constexpr int kHeads = 8;
  const auto backend = kernels::MakeReferenceBackend();
  const auto cache =
      Cache::Make(*backend,
                  {.shape = {.n_layers = 1, .n_kv_heads = kHeads, .key_dim = 1, .value_dim = 1},
                   .capacity = kSlots,
                   .state = {.n_columns = 1},
                   .shared_rows = true})
          .value();
  const auto memory = backend->Allocate(kSlots * kHeads * 4).value();
  const Matrix k = {memory.get(), 0, kSlots, kHeads, kHeads};
  std::vector<Position> positions(kSlots);
  std::iota(positions.begin(), positions.end(), 0);
  const int64_t before = BytesInUse();
  ASSERT_TRUE(cache->Append(0, k, k, positions).has_value());
  constexpr int64_t kPerSlot = 3 * 4 + 3 * 4 + 8;  // place and rank, row and factor, column
  EXPECT_GT(BytesInUse() - before, kSlots * kHeads * kPerSlot);
  {
    Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kHeads)};
    for (HeadPlan& head : plan.heads) {
      for (Slot slot = 5; slot < kSlots; ++slot) head.evict.push_back(slot);
    }
    cache->Apply(plan);
  }
  // Working memory of one head stays for the next plan.
  EXPECT_LT(BytesInUse() - before, kSlots * kPerSlot);
}

TEST(CacheCapped, DistancesStopAtTheCap) {
  const auto backend = kernels::MakeReferenceBackend();
  CacheConfig config = Config(TensorType::kF32, 32, 16);
  config.positions = PositionMode::kCapped;
  config.distance_cap = 10;
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
