#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cache/cache.h"
#include "gguf/tensor_type.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

// A cache whose contents are checked entry by entry against a plain copy.
namespace winnow::cache::testing {

using kernels::Matrix;

inline constexpr CacheShape kShape = {
    .n_layers = 2, .n_kv_heads = 3, .key_dim = 32, .value_dim = 64};

// One entry of one head as the cache must hold it: the stored bytes as 16-bit words.
struct Entry {
  Position position = 0;
  std::vector<uint16_t> key;
  std::vector<uint16_t> value;
  bool operator==(const Entry&) const = default;
};

inline std::vector<uint16_t> Stored(TensorType type, std::span<const float> values) {
  const int64_t n_bytes = gguf::RowBytes(type, static_cast<int64_t>(values.size()));
  std::vector<uint16_t> words(static_cast<size_t>(n_bytes) / 2);
  kernels::Quantize(type, values, std::as_writable_bytes(std::span(words)));
  return words;
}

// A cache, and the entries it should hold.
class CheckedCache : public ::testing::TestWithParam<TensorType> {
 protected:
  CheckedCache() : CheckedCache(kernels::MakeReferenceBackend(), /*gather_from_bytes=*/0) {}
  CheckedCache(std::unique_ptr<kernels::Backend> backend, int64_t gather_from_bytes)
      : backend_(std::move(backend)) {
    auto cache = Cache::Make(*backend_, {.shape = kShape,
                                         .key_type = GetParam(),
                                         .value_type = GetParam(),
                                         .capacity = 200,
                                         .storage = {.positions = PositionMode::kReassigned},
                                         .state = {.n_columns = 2,
                                                   .n_float_columns = 1,
                                                   .n_half_columns = 1,
                                                   .n_head_numbers = 1,
                                                   .n_layer_numbers = 3},
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
    // Give each entry a state that identifies it.
    for (int head = 0; head < kShape.n_kv_heads; ++head) {
      const std::span<double> column = cache_->column(layer, head, 1);
      const std::span<float> floats = cache_->float_column(layer, head, 0);
      const std::span<Half> halves = cache_->half_column(layer, head, 0);
      const auto n_slots = static_cast<size_t>(cache_->n_slots(layer, head));
      for (size_t slot = n_slots - static_cast<size_t>(n); slot < n_slots; ++slot) {
        EXPECT_EQ(column[slot], 0);
        EXPECT_EQ(floats[slot], 0);
        EXPECT_EQ(halves[slot], 0);
        const Position position = cache_->positions(layer, head)[slot];
        column[slot] = 3.0 * position + head;
        floats[slot] = 0.5f * static_cast<float>(position);
        halves[slot] = static_cast<float>(position % 1024) + 0.5f;
      }
    }
  }

  // Keeps every entry with probability `share`, each head on its own. Plans list the evicted slots
  // in random order.
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

  // Uses angles of zero, so that the rows keep their values.
  void Unrotate(int layer) {
    const auto memory = backend_->Allocate(64 * 4).value();
    std::vector<float> table(64, 0.0f);
    for (size_t row = 0; row < 32; ++row) table[2 * row] = 1;
    const Matrix rows = {memory.get(), 0, 32, 2, 2};
    backend_->Write(rows, table);
    cache_->Unrotate(layer, {.table = rows, .n_rotated = 2, .interleaved = false});
    EXPECT_FALSE(cache_->keys_rotated(layer));
  }

  // Writes all layers to bytes and reads them into another cache.
  void ReadBack() {
    auto read = Cache::Make(*backend_, cache_->config()).value();
    for (int layer = 0; layer < kShape.n_layers; ++layer) {
      std::string bytes;
      cache_->WriteLayer(layer, bytes);
      const auto done = read->ReadLayer(layer, std::as_bytes(std::span(bytes)), 1 << 20);
      ASSERT_TRUE(done.has_value()) << done.error().message;
    }
    cache_ = std::move(read);
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

  void RandomHistories(int max_added) {
    for (int history = 0; history < 30; ++history) {
      std::vector<Position> end(kShape.n_layers, 0);
      for (int step = 0; step < 10; ++step) {
        const int layer = static_cast<int>(rng_.Below(kShape.n_layers));
        switch (rng_.Below(7)) {
          case 0:
          case 1: {
            const int n = std::min(static_cast<int>(rng_.Below(max_added)), RoomLeft(layer));
            cache_->BeginCall(Phase::kPrefill, n);
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
          case 4:  // a decode step
            cache_->BeginCall(Phase::kDecode, 1);
            if (RoomLeft(layer) > 0) Append(layer, end[static_cast<size_t>(layer)]++, 1);
            break;
          case 5:
            cache_ = cache_->Copy().value();
            break;
          case 6:
            ReadBack();
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
    // Rows of a cache type are whole 16-bit words. Reading works on floats, so it may include a
    // word before or after.
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
    int64_t n_list_bytes = 0;
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
        ASSERT_EQ(cache_->ranks(layer, head).size(), entries.size());
        n_list_bytes += cache_->list_bytes(layer, head);
        for (int64_t i = 0; i < n; ++i) {
          const Slot slot = cache_->order(layer, head)[static_cast<size_t>(i)];
          const Entry found = {
              cache_->positions(layer, head)[static_cast<size_t>(slot)],
              ReadBytes(store.keys, store.keys_offset_bytes + slot * key_bytes, key_bytes),
              ReadBytes(store.values, store.values_offset_bytes + slot * value_bytes, value_bytes)};
          ASSERT_EQ(found, entries[static_cast<size_t>(i)]) << layer << " " << head << " " << i;
          ASSERT_EQ(cache_->ranks(layer, head)[static_cast<size_t>(slot)], i);
          ASSERT_EQ(cache_->column(layer, head, 1)[static_cast<size_t>(slot)],
                    3.0 * found.position + head);
          ASSERT_EQ(cache_->float_column(layer, head, 0)[static_cast<size_t>(slot)],
                    0.5f * static_cast<float>(found.position));
          ASSERT_EQ(cache_->half_column(layer, head, 0)[static_cast<size_t>(slot)],
                    static_cast<float>(found.position % 1024) + 0.5f);
        }
      }
    }
    EXPECT_EQ(cache_->bytes_per_slot(0), key_bytes + value_bytes);
    const int64_t state_bytes =
        (2 * 8 + 4 + 2) * n_live + 8 * kShape.n_layers * (kShape.n_kv_heads + 3);
    EXPECT_EQ(cache_->live_bytes(), n_live * (key_bytes + value_bytes) + state_bytes);
    EXPECT_EQ(cache_->state_bytes(), state_bytes);
    EXPECT_EQ(cache_->list_bytes(), n_list_bytes);
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<kernels::Storage> rows_;
  std::vector<std::vector<std::vector<Entry>>> expected_;  // [layer][head], in text order
  Rng rng_{7};
};

}  // namespace winnow::cache::testing
