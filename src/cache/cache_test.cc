#include "cache/cache.h"

#include <gtest/gtest.h>
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
  CacheTest() : backend_(kernels::MakeReferenceBackend()) {
    auto cache = Cache::Make(
        *backend_,
        {.shape = kShape, .key_type = GetParam(), .value_type = GetParam(), .capacity = 200});
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
  }

  // Keeps every slot with the given probability, each head on its own.
  void Apply(int layer, double share) {
    Plan plan = {.layer = layer, .heads = {}};
    for (int head = 0; head < kShape.n_kv_heads; ++head) {
      std::vector<Entry>& entries = expected_[layer][head];
      std::vector<Entry> kept;
      HeadPlan& head_plan = plan.heads.emplace_back();
      for (size_t slot = 0; slot < entries.size(); ++slot) {
        if (rng_.Uniform() >= share) continue;
        head_plan.keep.push_back(static_cast<Slot>(slot));
        kept.push_back(entries[slot]);
      }
      entries = kept;
    }
    cache_->Apply(plan);
  }

  void Truncate(Position position) {
    for (auto& layer : expected_) {
      for (auto& entries : layer) {
        std::erase_if(entries, [&](const Entry& entry) { return entry.position >= position; });
      }
    }
    cache_->Truncate(position);
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
        }
      }
    }
    EXPECT_EQ(cache_->bytes_per_slot(), key_bytes + value_bytes);
    EXPECT_EQ(cache_->live_bytes(), n_live * (key_bytes + value_bytes));
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

TEST_P(CacheTest, TruncateGoesByPositionNotBySlot) {
  Append(0, 0, 40);
  Append(1, 0, 40);
  Apply(1, 0.5);
  Truncate(25);
  Verify();
  Truncate(0);
  Verify();
  EXPECT_EQ(cache_->live_bytes(), 0);
}

TEST_P(CacheTest, RandomHistories) {
  for (int history = 0; history < 30; ++history) {
    std::vector<Position> end(kShape.n_layers, 0);
    for (int step = 0; step < 10; ++step) {
      const int layer = static_cast<int>(rng_.Below(kShape.n_layers));
      switch (rng_.Below(4)) {
        case 0:
        case 1: {
          const int n = static_cast<int>(rng_.Below(20));
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

INSTANTIATE_TEST_SUITE_P(Types, CacheTest,
                         ::testing::Values(TensorType::kF32, TensorType::kF16, TensorType::kBF16,
                                           TensorType::kQ8_0, TensorType::kQ4_0),
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
  cache->Apply({.layer = 0, .heads = {{.keep = {0, 5, 32767}}, {.keep = {1}}}});
  EXPECT_LT(ResidentBytes() - before, kBytes / 8);
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
