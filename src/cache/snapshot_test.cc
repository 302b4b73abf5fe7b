#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cache/cache.h"
#include "kernels/backends.h"
#include "kernels/ops.h"

namespace winnow::cache {
namespace {

using kernels::Matrix;

constexpr int kHeads = 2;
constexpr int kDim = 32;
constexpr int kEntries = 12;

// A cache layer after evictions, with a method's state: everything a snapshot can contain.
class Snapshot : public ::testing::TestWithParam<bool> {
 protected:
  Snapshot() : backend_(kernels::MakeReferenceBackend()), cache_(Empty(kEntries + 4)) {
    const auto memory = backend_->Allocate(kEntries * kHeads * kDim * 4).value();
    const Matrix rows = {memory.get(), 0, kEntries, kHeads * kDim, kHeads * kDim};
    std::vector<float> values(kEntries * kHeads * kDim);
    std::iota(values.begin(), values.end(), 0.0f);
    backend_->Write(rows, values);
    std::vector<Position> positions(kEntries);
    std::iota(positions.begin(), positions.end(), 5);
    EXPECT_TRUE(cache_->Append(0, rows, rows, positions).has_value());
    Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kHeads)};
    plan.heads[0].evict = {3, 0};
    plan.heads[1].evict = {7};
    if (shares()) {
      plan.heads[0].shares = {{.slot = 5, .row = 4, .factor = 0.5f}};
    }
    cache_->Apply(plan);
    for (int head = 0; head < kHeads; ++head) {
      std::ranges::fill(cache_->column(0, head, 0), 1.5 + head);
      std::ranges::fill(cache_->half_column(0, head, 0), Half(0.25f));
      cache_->head_numbers(0, head)[0] = 7;
    }
    cache_->layer_numbers(0)[0] = -1;
  }

  bool shares() const { return GetParam(); }
  std::unique_ptr<Cache> Empty(int64_t capacity, PositionMode positions = PositionMode::kOriginal) {
    return Cache::Make(
               *backend_,
               {.shape = {.n_layers = 1, .n_kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim},
                .capacity = capacity,
                .storage = {.positions = positions, .shared_rows = shares()},
                .state = {.n_columns = 1,
                          .n_half_columns = 1,
                          .n_head_numbers = 1,
                          .n_layer_numbers = 1}})
        .value();
  }
  std::string Bytes(const Cache& cache) const {
    std::string bytes;
    cache.WriteLayer(0, bytes);
    return bytes;
  }
  Result<void> Read(Cache& cache, const std::string& bytes, Position end = 100) const {
    return cache.ReadLayer(0, std::as_bytes(std::span(bytes)), end);
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Cache> cache_;
};

TEST_P(Snapshot, RoundTrips) {
  const std::string bytes = Bytes(*cache_);
  const auto read = Empty(kEntries + 4);
  ASSERT_TRUE(Read(*read, bytes).has_value());
  EXPECT_EQ(Bytes(*read), bytes);
  EXPECT_EQ(read->live_bytes(), cache_->live_bytes());
  for (int head = 0; head < kHeads; ++head) {
    EXPECT_TRUE(std::ranges::equal(read->positions(0, head), cache_->positions(0, head)));
    EXPECT_TRUE(std::ranges::equal(read->order(0, head), cache_->order(0, head)));
    EXPECT_TRUE(std::ranges::equal(read->column(0, head, 0), cache_->column(0, head, 0)));
    EXPECT_TRUE(std::ranges::equal(read->n_sharing(0, head), cache_->n_sharing(0, head)));
  }
  EXPECT_EQ(read->layer_numbers(0)[0], -1);
  // The loaded layer behaves like the written one.
  Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kHeads)};
  plan.heads[0].evict = {1, 4};
  plan.heads[1].evict = {0};
  cache_->Apply(plan);
  read->Apply(plan);
  EXPECT_EQ(Bytes(*read), Bytes(*cache_));
}

TEST_P(Snapshot, OfAnotherCacheIsRefused) {
  const std::string bytes = Bytes(*cache_);
  EXPECT_FALSE(Read(*Empty(kEntries - 3), bytes)) << "more entries than fit";
  EXPECT_FALSE(Read(*Empty(kEntries), bytes, 16)) << "positions beyond the text";
  EXPECT_FALSE(Read(*Empty(kEntries), bytes + "x"));
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(Read(*Empty(kEntries), bytes.substr(0, n))) << n;
  }
}

// Rows are shared only after Unrotate. session_mutations found this file.
TEST_P(Snapshot, SharedRowsOfRotatedKeysAreRefused) {
  std::string bytes = Bytes(*cache_);
  bytes[0] = 1;  // keys rotated
  bytes[1] = 0;  // rows are not slots
  EXPECT_EQ(Read(*Empty(kEntries), bytes).has_value(), shares()) << "original positions may";
  for (const PositionMode mode : {PositionMode::kReassigned, PositionMode::kCapped}) {
    const auto read = Read(*Empty(kEntries, mode), bytes);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "layer 0: flags that this cache cannot have");
  }
  bytes[0] = 0;
  EXPECT_EQ(Read(*Empty(kEntries, PositionMode::kReassigned), bytes).has_value(), shares());
}

// A layer that is accepted can be written, attended to and evicted from.
TEST_P(Snapshot, AnyBytesAreReadOrRefused) {
  const std::string bytes = Bytes(*cache_);
  const size_t n_rows_begin =
      bytes.size() - 10 * kHeads * kDim * 2 * 2;  // any change after it fits
  Rng rng(1);
  int n_read = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string wrong = bytes;
    for (int change = 0; change < 1 + i % 3; ++change) {
      const auto at = static_cast<size_t>(rng.Below(static_cast<int>(n_rows_begin)));
      wrong[at] = static_cast<char>(rng.Below(2) == 0 ? rng.Below(256) : wrong[at] ^ 1);
    }
    const auto cache = Empty(kEntries);
    if (!Read(*cache, wrong)) continue;
    ++n_read;
    (void)cache->Entries(0, 1);
    Plan plan = {.layer = 0, .heads = std::vector<HeadPlan>(kHeads)};
    plan.heads[0].evict = {0};
    plan.heads[1].evict = {2};
    cache->Apply(plan);
    EXPECT_FALSE(Bytes(*cache).empty());
  }
  EXPECT_GT(n_read, 100);
  EXPECT_LT(n_read, 3900);
}

INSTANTIATE_TEST_SUITE_P(Rows, Snapshot, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Shared" : "Own"; });

}  // namespace
}  // namespace winnow::cache
