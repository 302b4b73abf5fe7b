#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/sanitizer.h"
#include "compression/parts.h"
#include "fixture.h"

// Invariants of every method (docs/methods/semantics.md#invariants).
namespace winnow::conformance {
namespace {

#ifdef WINNOW_SANITIZES_MEMORY  // the same code is reached with fewer numbers
constexpr int kNumbersOfKvHeads[] = {2};
constexpr int64_t kBudgets[] = {9, 64};
constexpr int64_t kChunks[] = {7, 64};
#else
constexpr int kNumbersOfKvHeads[] = {2, 4};
constexpr int64_t kBudgets[] = {1, 2, 9, 32, 33, 64, 65};
constexpr int64_t kChunks[] = {1, 7, 50, 64, 1000};
#endif

class EveryMethod : public ::testing::TestWithParam<std::string> {
 protected:
  static int64_t AtLeast(int64_t size) {
    return std::max(size, MethodTraits(GetParam()).budget.min);
  }
};

// Invariant 1: a prompt within the budget is answered as with the full cache, bit for bit.
TEST_P(EveryMethod, WithinTheBudgetNothingChanges) {
  const compression::Traits traits = MethodTraits(GetParam());
  if (!traits.budget.needed) GTEST_SKIP() << "skipped: finds its own size";
  for (const int n_kv_heads : kNumbersOfKvHeads) {
    if (traits.storage.per_query_head && n_kv_heads < 4)
      continue;  // attention is summed in another order
    const auto engine = OpenTiny(n_kv_heads);
    for (const kernels::TensorType type : {kernels::TensorType::kF16, kernels::TensorType::kF32}) {
      const auto full = Open(*engine, "", {.type = type});
      const auto method = Open(*engine, GetParam(), {.size = AtLeast(128), .type = type});
      ASSERT_TRUE(full->Prefill(Tokens(90)).value());
      ASSERT_TRUE(method->Prefill(Tokens(90)).value());
      ASSERT_EQ(Logits(*full), Logits(*method));
      for (const TokenId token : Tokens(30, 11)) {
        ASSERT_TRUE(full->Decode(token).has_value());
        ASSERT_TRUE(method->Decode(token).has_value());
        ASSERT_EQ(Logits(*full), Logits(*method));
      }
      EXPECT_EQ(TotalSlots(*full), TotalSlots(*method));
    }
  }
}

// The same for a prompt that fills the budget, and for the first token after it, because eviction
// follows attention.
TEST_P(EveryMethod, APromptAsLongAsTheBudgetIsUntouched) {
  const compression::Traits traits = MethodTraits(GetParam());
  if (!traits.budget.needed) GTEST_SKIP() << "skipped: finds its own size";
  for (const int n_kv_heads : kNumbersOfKvHeads) {
    if (traits.storage.per_query_head && n_kv_heads < 4)
      continue;  // attention is summed in another order
    const auto engine = OpenTiny(n_kv_heads);
    for (const int64_t wanted : {40, 192}) {
      const int64_t size = AtLeast(wanted);
      const auto full = Open(*engine, "");
      const auto method = Open(*engine, GetParam(), {.size = size});
      for (Session* session : {full.get(), method.get()}) {
        ASSERT_TRUE(session->Prefill(Tokens(static_cast<int>(size))).value());
      }
      ASSERT_EQ(Logits(*full), Logits(*method)) << size;
      ASSERT_EQ(KeptEverywhere(*full), KeptEverywhere(*method)) << size;
      for (Session* session : {full.get(), method.get()}) {
        ASSERT_TRUE(session->Decode(3).has_value());
      }
      ASSERT_EQ(Logits(*full), Logits(*method)) << size;
    }
  }
}

// Invariants 2 and 3: sizes around every boundary, kept positions ascend, promised entries are
// kept.
TEST_P(EveryMethod, TheBudgetIsHeld) {
  const compression::Traits traits = MethodTraits(GetParam());
  std::set<int64_t> sizes;  // for many methods the small sizes coincide
  for (const int64_t wanted : kBudgets) sizes.insert(AtLeast(wanted));
  for (const int n_kv_heads : kNumbersOfKvHeads) {
    const auto engine = OpenTiny(n_kv_heads);
    for (const int64_t size : sizes) {
      for (const int64_t n : {int64_t{1}, size - 1, size, size + 1, size + 31, 3 * size + 7}) {
        if (n < 1) continue;
        const auto session = Open(*engine, GetParam(), {.size = size});
        SCOPED_TRACE("budget " + std::to_string(size) + ", prompt " + std::to_string(n));
        const auto method = session->compression().method;
        const auto check = [&](int64_t n_decoded) {
          const int n_layers = session->cache().config().shape.n_layers;
          const int64_t n_tokens = session->n_tokens();
          const int64_t n_grown = traits.decisions.evicts_in_decode ? 0 : n_decoded;
          const int64_t of_method =
              n_decoded > n_grown
                  ? method->DecodeSizes(session->budget(), n, n_tokens, n_layers).total_slots
                  : method->TotalSlots(session->budget(), n_tokens, n_layers);
          ASSERT_LE(TotalSlots(*session), (of_method + n_grown * n_layers) * NHeads(*session));
          const int64_t budget =
              traits.budget.needed ? size : std::numeric_limits<int64_t>::max() / 2;
          const compression::Promise promise =
              compression::MethodPromise(GetParam(), budget).value();
          const int64_t n_sinks = std::min(promise.sinks, n_tokens);
          const int64_t n_recent = std::min(promise.recent + n_grown, n_tokens);
          for (const auto& kept : KeptEverywhere(*session)) {
            ASSERT_FALSE(kept.empty());
            ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end(), std::less_equal<>()));
            ASSERT_GE(kept.front(), 0);
            ASSERT_LT(kept.back(), n_tokens);
            const auto n_kept = static_cast<int64_t>(kept.size());
            if (promise.exact) {
              ASSERT_EQ(n_kept, std::min(n_tokens - n_grown, budget) + n_grown);
            }
            ASSERT_GE(n_kept, std::max(n_sinks, n_recent));
            ASSERT_TRUE(n_sinks == 0 || kept[static_cast<size_t>(n_sinks - 1)] == n_sinks - 1);
            ASSERT_TRUE(n_recent == 0 ||
                        kept[static_cast<size_t>(n_kept - n_recent)] == n_tokens - n_recent);
          }
        };
        ASSERT_TRUE(session->Prefill(Tokens(static_cast<int>(n))).value());
        check(0);
        if (HasFatalFailure()) return;
        int64_t n_decoded = 0;
        for (const TokenId token : Tokens(12, 3)) {
          ASSERT_TRUE(session->Decode(token).has_value());
          ++n_decoded;
          check(n_decoded);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(EveryMethod, ChunkedPrefillHoldsTheBudgetAfterEveryChunk) {
  const auto engine = OpenTiny(2);
  const int64_t size = AtLeast(48);
  for (const int64_t chunk : kChunks) {
    const auto session = Open(*engine, GetParam(), {.size = size, .chunk = chunk});
    const int n_layers = session->cache().config().shape.n_layers;
    int64_t n_chunks = 0;
    Session::PrefillOptions options;
    options.progress = [&](double done) {
      const int64_t n_tokens = std::llround(200 * done);
      const bool whole = std::abs(200 * done - static_cast<double>(n_tokens)) < 1e-6;
      if (!whole || (n_tokens % chunk != 0 && n_tokens != 200)) return true;
      ++n_chunks;
      EXPECT_LE(TotalSlots(*session),
                session->compression().method->TotalSlots(session->budget(), n_tokens, n_layers) *
                    NHeads(*session))
          << "chunks of " << chunk << ", after " << n_tokens;
      return true;
    };
    ASSERT_TRUE(session->Prefill(Tokens(200), options).value());
    EXPECT_EQ(n_chunks, (200 + chunk - 1) / chunk);
    EXPECT_EQ(session->n_tokens(), 200);
  }
}

// docs/methods/semantics.md#chunks: a chunk of one is the decode step of a step method.
TEST_P(EveryMethod, AChunkOfOneIsADecodeStep) {
  if (!MethodTraits(GetParam()).decisions.evicts_in_decode)
    GTEST_SKIP() << "skipped: evicts only in prefill";
  if (!compression::MethodPromise(GetParam(), 24).value().prompt_by_steps) {
    GTEST_SKIP() << "skipped: has another rule for prompts";
  }
  const auto engine = OpenTiny(2);
  const int64_t size = AtLeast(24);
  const auto chunked = Open(*engine, GetParam(), {.size = size, .chunk = 1});
  const auto stepped = Open(*engine, GetParam(), {.size = size});
  const auto tokens = Tokens(120);
  ASSERT_TRUE(chunked->Prefill(tokens).value());
  for (const TokenId token : tokens) ASSERT_TRUE(stepped->Decode(token).has_value());
  EXPECT_EQ(KeptEverywhere(*chunked), KeptEverywhere(*stepped));
  EXPECT_EQ(Logits(*chunked), Logits(*stepped));
}

TEST_P(EveryMethod, TheNumberOfThreadsDoesNotMatter) {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::vector<cache::Position>>> kept;
  for (const int n_threads : {1, 3}) {
    const auto engine = OpenTiny(2, n_threads);
    const auto session = Open(*engine, GetParam(), {.size = AtLeast(40)});
    ASSERT_TRUE(session->Prefill(Tokens(150)).value());
    for (const TokenId token : Tokens(20, 3)) ASSERT_TRUE(session->Decode(token).has_value());
    logits.push_back(Logits(*session));
    kept.push_back(KeptEverywhere(*session));
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(kept[0], kept[1]);
}

// State does not leak from one prompt to the next, nor between sequences.
TEST_P(EveryMethod, SequencesAreIndependent) {
  const auto engine = OpenTiny(2);
  const int64_t size = AtLeast(40);
  const auto run = [&](Session& session, int seed) {
    EXPECT_TRUE(session.Prefill(Tokens(120, seed)).value());
    for (const TokenId token : Tokens(20, seed + 1)) {
      EXPECT_TRUE(session.Decode(token).has_value());
    }
    return Logits(session);
  };
  const auto fresh = Open(*engine, GetParam(), {.size = size});
  const auto expected = run(*fresh, 5);
  const auto used = Open(*engine, GetParam(), {.size = size});
  run(*used, 33);
  used->Reset();
  EXPECT_EQ(run(*used, 5), expected);
  EXPECT_EQ(KeptEverywhere(*used), KeptEverywhere(*fresh));

  // Two sequences that take turns, token by token.
  const auto a = Open(*engine, GetParam(), {.size = size});
  const auto b = Open(*engine, GetParam(), {.size = size});
  ASSERT_TRUE(a->Prefill(Tokens(120, 5)).value());
  ASSERT_TRUE(b->Prefill(Tokens(77, 9)).value());
  for (const TokenId token : Tokens(20, 6)) {
    ASSERT_TRUE(a->Decode(token).has_value());
    ASSERT_TRUE(b->Decode((token + 1) % kVocabulary).has_value());
  }
  EXPECT_EQ(Logits(*a), expected);
}

TEST_P(EveryMethod, AForkGoesOnLikeTheOriginal) {
  const auto engine = OpenTiny(2);
  const auto session = Open(*engine, GetParam(), {.size = AtLeast(40)});
  ASSERT_TRUE(session->Prefill(Tokens(120)).value());
  const auto fork = session->Fork().value();
  const auto second = session->Fork().value();
  for (const TokenId token : Tokens(15, 40)) ASSERT_TRUE(second->Decode(token).has_value());
  for (const TokenId token : Tokens(20, 3)) {
    ASSERT_TRUE(session->Decode(token).has_value());
    ASSERT_TRUE(fork->Decode(token).has_value());
    ASSERT_EQ(Logits(*session), Logits(*fork));
  }
  EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*fork));
}

TEST_P(EveryMethod, EveryCacheTypeWorks) {
  const auto engine = OpenTiny(2, kThreads, 32);
  for (const kernels::TensorType type :
       {kernels::TensorType::kF32, kernels::TensorType::kF16, kernels::TensorType::kBF16,
        kernels::TensorType::kQ8_0, kernels::TensorType::kQ4_0}) {
    const auto session = Open(*engine, GetParam(), {.size = AtLeast(40), .type = type});
    ASSERT_TRUE(session->Prefill(Tokens(150)).value());
    for (const TokenId token : Tokens(10, 3)) ASSERT_TRUE(session->Decode(token).has_value());
    for (const float x : Logits(*session)) ASSERT_TRUE(std::isfinite(x));
  }
}

// --kv-memory: no layer may raise the cache above the limit.
TEST_P(EveryMethod, TheMemoryLimitIsNeverExceeded) {
  constexpr int64_t kLong = 1 << 20;
  const auto method = *compression::MakeMethod(GetParam());
  if (!method->traits().budget.needed && method->TotalSlots(1, kLong, 1) == kLong) {
    GTEST_SKIP() << "skipped: takes what its prompt takes";
  }
  const auto engine = OpenTiny(2);
  for (const int64_t chunk : {0, 16}) {
    // 3 layers, 2 KV heads, 16 dimensions in f16: 64 bytes per slot and head without state.
    const int64_t limit = 3 * 2 * 64 * AtLeast(64) * 4;
    int64_t max = 0;
    CompressionOptions compression = {
        .method = method, .memory_bytes = limit, .prefill_chunk = chunk, .reserve_tokens = 16};
    compression.on_plan = [&](const cache::Plan&, const runtime::PlanContext& context) {
      max = std::max(max, context.cache.live_bytes());
    };
    const auto session =
        Session::Make(*engine, {.context = 2048, .compression = compression}).value();
    const int n = static_cast<int>(AtLeast(64)) * 3;
    const auto prefilled = session->Prefill(Tokens(n));
    ASSERT_TRUE(prefilled.has_value()) << prefilled.error().message;
    EXPECT_LE(session->cache_bytes(), limit);
    // The budget must not waste most of the allowed memory.
    EXPECT_GT(session->budget(), AtLeast(64) / 4);
    for (const TokenId token : Tokens(16, 3)) {
      const auto decoded = session->Decode(token);
      ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
      max = std::max(max, session->cache_bytes());
    }
    EXPECT_LE(max, limit);
  }
}

TEST_P(EveryMethod, TooSmallABudgetIsRefused) {
  const compression::Traits traits = MethodTraits(GetParam());
  if (!traits.budget.needed) GTEST_SKIP() << "skipped: finds its own size";
  const auto engine = OpenTiny(2);
  CompressionOptions compression = {.method = *compression::MakeMethod(GetParam())};
  const auto without = Session::Make(*engine, {.compression = compression});
  ASSERT_FALSE(without.has_value());
  EXPECT_NE(without.error().message.find("needs a budget"), std::string::npos)
      << without.error().message;
  if (traits.budget.min == 1) return;
  compression.size = traits.budget.min - 1;
  const auto small = Session::Make(*engine, {.compression = compression});
  ASSERT_FALSE(small.has_value());
  const std::string expected = "needs " + std::to_string(traits.budget.min) + " or more";
  EXPECT_NE(small.error().message.find(expected), std::string::npos) << small.error().message;
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod, ::testing::ValuesIn(MethodsAndVariants()), TestName);

}  // namespace
}  // namespace winnow::conformance
