#include "base/machine.h"
#include "base/sanitizer.h"
#include "fixture.h"

// Memory is really freed: compares the system's figures with the cache's.
namespace winnow::conformance {
namespace {

class Memory : public ::testing::TestWithParam<std::string> {};

TEST_P(Memory, FallsToWhatTheCacheSaysAfterACompressedPrefill) {
#ifdef WINNOW_SANITIZES_MEMORY
  GTEST_SKIP() << "skipped: sanitizers keep freed memory";
#endif
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.n_layers = 8;
  spec.key_dim = spec.value_dim = 64;
  spec.context = 16384;
  const auto engine = runtime::testing::TinyEngine(spec);

  constexpr int kTokens = 4096;
  constexpr int64_t kSize = 256;
  // Allocate the buffers for a prompt of this length before measuring.
  const auto warm = Open(*engine, GetParam(), {.size = kSize, .context = 16384});
  ASSERT_TRUE(warm->Prefill(Tokens(kTokens)).value());
  warm->Reset();
  const int64_t before = ResidentBytes();
  const auto session = Open(*engine, GetParam(), {.size = kSize, .context = 16384});
  ASSERT_TRUE(session->Prefill(Tokens(kTokens)).value());
  const int64_t grown = ResidentBytes() - before;
  const int64_t full = session->cache_bytes_full_f16();
  if (GetParam() == "snapkv") {
    EXPECT_EQ(session->cache_bytes(), full / kTokens * kSize);
  }
  EXPECT_LT(session->cache_bytes(), full / 4);
  EXPECT_LT(session->cache_bytes(), grown + (1 << 20));
  EXPECT_LT(grown, session->cache_bytes_with_lists() + (2 << 20)) << "full: " << full;

  const cache::Cache& cache = session->cache();
  const int64_t n_heads = int64_t{spec.n_layers} * spec.n_kv_heads;
  int64_t n_entries = 0;
  for (int layer = 0; layer < spec.n_layers; ++layer) {
    for (int head = 0; head < spec.n_kv_heads; ++head) n_entries += cache.n_slots(layer, head);
  }
  constexpr int64_t kHighParts = 8;  // of a head's positions, which are all below 65536
  const int64_t lists = session->cache_bytes_with_lists() - session->cache_bytes();
  EXPECT_GT(lists, 0);
  EXPECT_LE(lists, n_entries * cache.max_list_bytes_per_slot() + n_heads * kHighParts);
}

INSTANTIATE_TEST_SUITE_P(Methods, Memory,
                         ::testing::Values("snapkv", "h2o", "treekv", "d2o", "ems"), TestName);

}  // namespace
}  // namespace winnow::conformance
