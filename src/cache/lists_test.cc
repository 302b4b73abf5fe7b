// Memory of the lists of slots and positions, and that it is freed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cache/cache.h"
#include "cache/testing/bytes_in_use.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

class CacheLists : public ::testing::Test {
 protected:
  static constexpr int kHeads = 4;
  static constexpr int64_t kCapacity = 1 << 16;
  static constexpr int64_t kBlock = 4096;

  CacheLists()
      : backend_(kernels::MakeReferenceBackend()),
        memory_(backend_->Allocate(kBlock * kHeads * 4).value()),
        cache_(Cache::Make(
                   *backend_,
                   {.shape = {.n_layers = 2, .n_kv_heads = kHeads, .key_dim = 1, .value_dim = 1},
                    .capacity = kCapacity})
                   .value()) {}

  void Append(int64_t n) {
    cache_->BeginCall(n == 1 ? Phase::kDecode : Phase::kPrefill, n);
    for (int layer = 0; layer < 2; ++layer) {
      Position next = next_;
      for (int64_t first = 0; first < n; first += kBlock) {
        std::vector<Position> positions(static_cast<size_t>(std::min(kBlock, n - first)));
        std::iota(positions.begin(), positions.end(), next);
        next += static_cast<Position>(positions.size());
        const auto rows = static_cast<int64_t>(positions.size());
        const kernels::Matrix k = {memory_.get(), 0, rows, kHeads, kHeads};
        ASSERT_TRUE(cache_->Append(layer, k, k, positions).has_value());
      }
    }
    next_ += static_cast<Position>(n);
  }
  // Keeps every 64th entry of every head: a different one per head, or the same for all.
  void Compress(bool same) {
    for (int layer = 0; layer < 2; ++layer) {
      Plan plan = {.layer = layer, .heads = std::vector<HeadPlan>(kHeads)};
      for (int head = 0; head < kHeads; ++head) {
        const Slot kept = same ? 5 : head;
        for (Slot slot = 0; slot < cache_->n_slots(layer, head); ++slot) {
          if (slot % 64 != kept) plan.heads[static_cast<size_t>(head)].evict.push_back(slot);
        }
      }
      cache_->Apply(plan);
    }
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Storage> memory_;
  std::unique_ptr<Cache> cache_;
  Position next_ = 0;
};

TEST_F(CacheLists, AFullCacheHasNone) {
  const int64_t before = testing::BytesInUse();
  Append(32768);
  Append(1);
  EXPECT_EQ(cache_->list_bytes(), 0);
  cache_->Truncate(1000);
  EXPECT_EQ(cache_->list_bytes(), 0);
  EXPECT_EQ(cache_->positions(1, 2).size(), 1000u);
  cache_->BeginCall(Phase::kDecode, 1);  // frees buffers
  if (before < 0) GTEST_SKIP() << "skipped: the allocator does not tell what it handed out";
  EXPECT_LT(testing::BytesInUse() - before, 16 << 10);  // the view of 1000 positions
}

TEST_F(CacheLists, AnEntryTakesFourBytesAfterAnEviction) {
  const int64_t before = testing::BytesInUse();
  Append(32768);
  Compress(/*same=*/false);
  constexpr int64_t kLeft = 32768 / 64;
  EXPECT_EQ(cache_->max_list_bytes_per_slot(), 4);
  EXPECT_EQ(cache_->list_bytes(), 2 * kHeads * (kLeft * 4 + 8));
  EXPECT_EQ(cache_->list_bytes(1, 3), kLeft * 4 + 8);
  Append(1);
  // A sixteenth more (at least 48 entries), so that steps rarely allocate.
  EXPECT_LE(cache_->list_bytes(), 2 * kHeads * ((kLeft + 1 + 48) * 4 + 8));
  if (before < 0) GTEST_SKIP() << "skipped: the allocator does not tell what it handed out";
  // list_bytes counts what is allocated. Append announced a call, which freed the buffers.
  EXPECT_LT(testing::BytesInUse() - before, cache_->list_bytes() + (16 << 10));
}

TEST_F(CacheLists, HeadsThatKeepTheSameShareOne) {
  Append(32768);
  Compress(/*same=*/true);
  constexpr int64_t kList = 32768 / 64 * 4 + 8;
  EXPECT_EQ(cache_->list_bytes(), 2 * kList);
  EXPECT_EQ(cache_->list_bytes(0, 0), kList / kHeads);
  const auto copy = cache_->Copy().value();
  EXPECT_EQ(copy->list_bytes(), 2 * kList);
  Append(100);
  Compress(/*same=*/false);  // from here on each head has its own list
  EXPECT_GT(cache_->list_bytes(), 0);
  for (int head = 1; head < kHeads; ++head) {
    EXPECT_NE(cache_->positions(0, head)[0], cache_->positions(0, 0)[0]) << head;
  }
  cache_->Clear();
  EXPECT_EQ(cache_->list_bytes(), 0);
  next_ = 0;
  Append(50);
  EXPECT_EQ(cache_->list_bytes(), 0);
}

}  // namespace
}  // namespace winnow::cache
