#include <algorithm>
#include <iterator>
#include <vector>

#include "base/machine.h"
#include "base/sanitizer.h"
#include "cache/testing/bytes_in_use.h"
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

  constexpr int kTokens = 2048;
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
  const int64_t n_heads = int64_t{spec.n_layers} * spec.n_kv_heads;
  const int64_t n_entries = TotalSlots(*session);
  if (compression::MethodPromise(GetParam(), kSize).value().exact) {
    EXPECT_EQ(n_entries, n_heads * kSize);
  }
  EXPECT_LT(session->cache_bytes(), full / 2);
  EXPECT_LT(session->cache_bytes(), grown + (1 << 20));
  EXPECT_LT(grown, session->cache_bytes_with_lists() + (2 << 20)) << "full: " << full;

  // Of a head: the high parts of its positions, which are all below 65536, and the slots that its
  // list may be allocated for beside those it holds (Cache::max_list_bytes_per_slot).
  constexpr int64_t kHighParts = 8, kSpare = 48;
  const int64_t lists = session->cache_bytes_with_lists() - session->cache_bytes();
  const auto has_gaps = [](const std::vector<cache::Position>& kept) {
    return kept.back() - kept.front() + 1 != std::ssize(kept);
  };
  if (std::ranges::any_of(KeptEverywhere(*session), has_gaps)) {
    EXPECT_GT(lists, 0);
  }
  const int64_t n_allocated = n_entries + n_entries / 16 + n_heads * kSpare;
  EXPECT_LE(lists, n_allocated * session->cache().max_list_bytes_per_slot() + n_heads * kHighParts);
}

// Working memory is not counted, so a session must not keep that of its prompt.
TEST_P(Memory, OfThePromptIsFreed) {
  if (cache::testing::BytesInUse() < 0) GTEST_SKIP() << "skipped: the allocator does not tell";
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.n_layers = 8;
  spec.context = 4096;
  const auto engine = runtime::testing::TinyEngine(spec);
  const auto read = [&] {
    auto session = Open(*engine, GetParam(), {.size = 256, .context = 4096});
    EXPECT_TRUE(session->Prefill(Tokens(2048)).value());
    return session;
  };
  const auto first = read();  // the threads' buffers
  const int64_t before = cache::testing::BytesInUse();
  const auto session = read();
  EXPECT_LT(cache::testing::BytesInUse() - before, session->cache_bytes_with_lists() + (256 << 10));
}

std::vector<std::string> MethodsWithBudget() {
  std::vector<std::string> specs = MethodNames();
  std::erase_if(specs, [](const std::string& spec) { return !MethodTraits(spec).budget.needed; });
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Methods, Memory, ::testing::ValuesIn(MethodsWithBudget()), TestName);

}  // namespace
}  // namespace winnow::conformance
