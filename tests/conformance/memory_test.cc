#include <unistd.h>

#include <fstream>

#include "fixture.h"

// Memory is really freed: what the system says against what the cache says.
namespace winnow::conformance {
namespace {

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Memory, FallsToWhatTheCacheSaysAfterACompressedPrefill) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: sanitizers keep freed memory";
#endif
  model::testing::TinySpec spec = model::testing::TinySpecOf("llama");
  spec.n_layers = 8;
  spec.key_dim = spec.value_dim = 64;
  spec.context = 16384;
  const auto engine = runtime::testing::TinyEngine(spec);

  constexpr int kTokens = 8192;
  // Warm: working memory of a prompt of this length has been taken once.
  const auto warm = Open(*engine, "snapkv", {.size = 512, .context = 16384});
  ASSERT_TRUE(warm->Prefill(Tokens(kTokens)).value());
  warm->Reset();
  const int64_t before = ResidentBytes();
  const auto session = Open(*engine, "snapkv", {.size = 512, .context = 16384});
  ASSERT_TRUE(session->Prefill(Tokens(kTokens)).value());
  const int64_t grown = ResidentBytes() - before;
  const int64_t full = session->cache_bytes_full();
  EXPECT_EQ(session->cache_bytes(), full / kTokens * 512);
  EXPECT_LT(session->cache_bytes(), grown + (1 << 20));
  EXPECT_LT(grown, session->cache_bytes() + (2 << 20)) << "full: " << full;
}

}  // namespace
}  // namespace winnow::conformance
