#include <algorithm>

#include "base/sanitizer.h"
#include "fixture.h"
#include "runtime/session/batch.h"
#include "runtime/session/batch_memory.h"

// A batch does not change the results of its sequences, whatever methods the others use.
namespace winnow::conformance {
namespace {

using runtime::Batch;

// A sequence and its text; `alone` reads the same, but not in a batch.
struct Pair {
  std::string spec;
  std::unique_ptr<Session> together;
  std::unique_ptr<Session> alone;
  std::vector<TokenId> text;
  int n_steps = 0;
};

Pair Begin(Engine& engine, const std::string& spec, int n_prompt, int n_steps,
           const SessionShape& shape) {
  Pair pair = {.spec = spec,
               .together = Open(engine, spec, shape),
               .alone = Open(engine, spec, shape),
               .text = Tokens(40, n_prompt),
               .n_steps = n_steps};
  for (Session* session : {pair.together.get(), pair.alone.get()}) {
    EXPECT_TRUE(session->Prefill(Tokens(n_prompt, n_steps)).value());
  }
  return pair;
}

// Advances all pairs until each has done its steps, and compares.
void RunTogether(Engine& engine, std::vector<Pair>& pairs) {
  Batch batch(engine);
  for (int step = 0;; ++step) {
    std::vector<Session*> sessions;
    std::vector<TokenId> tokens;
    for (Pair& pair : pairs) {
      if (step >= pair.n_steps) continue;
      sessions.push_back(pair.together.get());
      tokens.push_back(pair.text[static_cast<size_t>(step)]);
    }
    if (sessions.empty()) break;
    ASSERT_TRUE(batch.Decode(sessions, tokens).has_value());
    for (Pair& pair : pairs) {
      if (step >= pair.n_steps) continue;
      ASSERT_TRUE(pair.alone->Decode(pair.text[static_cast<size_t>(step)]).has_value());
      ASSERT_EQ(Logits(*pair.together), Logits(*pair.alone)) << pair.spec << ", step " << step;
      ASSERT_EQ(KeptEverywhere(*pair.together), KeptEverywhere(*pair.alone)) << pair.spec;
    }
  }
  for (const Pair& pair : pairs) {
    EXPECT_EQ(pair.together->cache_bytes(), pair.alone->cache_bytes()) << pair.spec;
    EXPECT_EQ(pair.together->attended_share(), pair.alone->attended_share()) << pair.spec;
    EXPECT_TRUE(std::equal(pair.together->tokens().begin(), pair.together->tokens().end(),
                           pair.alone->tokens().begin(), pair.alone->tokens().end()));
  }
}

// Engines on which n_exact rows multiplied together give the same bits as one by one: any number on
// the reference backend, up to 3 rows of quantised weights on the CPU backend.
struct Exact {
  std::shared_ptr<Engine> engine;
  size_t n_exact = 0;
};
std::vector<Exact> OpenExact(int dim) {
  std::vector<Exact> exact;
  exact.push_back({OpenTiny(2, 1, dim, "reference"), 100});
  exact.push_back({OpenTiny(2, 2, dim, {}, gguf::TensorType::kQ8_0), 3});
  return exact;
}

class EveryMethodTogether : public ::testing::TestWithParam<std::string> {
 protected:
  static int64_t Size(int64_t wanted) {
    return std::max(wanted, MethodTraits(GetParam()).budget.min);
  }
};

// Prompts below, at and above the budget; different numbers of steps, so that sequences leave the
// batch.
TEST_P(EveryMethodTogether, IsAlone) {
  for (const Exact& exact : OpenExact(32)) {
    Engine& engine = *exact.engine;
#ifdef WINNOW_SANITIZES_MEMORY  // EveryCacheTypeWorks reaches the others
    constexpr kernels::TensorType kTypes[] = {kernels::TensorType::kQ8_0};
#else
    constexpr kernels::TensorType kTypes[] = {kernels::TensorType::kF16, kernels::TensorType::kQ8_0,
                                              kernels::TensorType::kQ4_0};
#endif
    for (const kernels::TensorType type : kTypes) {
      const int64_t size = Size(30);
      const SessionShape shape = {.size = size, .type = type};
      const auto n = static_cast<int>(size);
      std::vector<Pair> pairs;
      pairs.push_back(Begin(engine, GetParam(), 3 * n + 7, 20, shape));
      pairs.push_back(Begin(engine, "", 50, 13, shape));
      pairs.push_back(Begin(engine, GetParam(), n - 4, 25, shape));
      if (exact.n_exact > 3) {
        pairs.push_back(Begin(engine, GetParam(), n, 1, shape));
        pairs.push_back(Begin(engine, "h2o", 90, 9, {.size = 40, .type = type}));
      }
      RunTogether(engine, pairs);
      if (HasFatalFailure()) return;
    }
  }
}

// A session never exceeds its reservation, which static batches are planned with.
TEST_P(EveryMethodTogether, StaysWithinItsReservation) {
  const auto engine = OpenTiny(2);
  for (const int64_t n_prompt : {20, 64, 200}) {
    for (const int64_t chunk : {0, 24}) {
      const SessionShape shape = {.size = Size(48), .chunk = chunk};
      SCOPED_TRACE("prompt " + std::to_string(n_prompt) + ", chunk " + std::to_string(chunk));
      const auto session = Open(*engine, GetParam(), shape);
      constexpr int64_t kSteps = 40;
      const runtime::Reservation reserved = session->Reserve(n_prompt, kSteps).value();
      const int64_t prefill_bytes = reserved.steady_bytes + reserved.prefill_surplus_bytes;
      EXPECT_GT(reserved.steady_bytes, 0);
      Session::PrefillOptions options;
      options.progress = [&](double) {
        EXPECT_LE(session->cache_bytes(), prefill_bytes);
        return true;
      };
      ASSERT_TRUE(session->Prefill(Tokens(static_cast<int>(n_prompt)), options).value());
      for (const TokenId token : Tokens(kSteps, 3)) {
        EXPECT_LE(session->cache_bytes(), reserved.steady_bytes);
        ASSERT_TRUE(session->Decode(token).has_value());
      }
      EXPECT_LE(session->cache_bytes(), reserved.steady_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethodTogether, ::testing::ValuesIn(MethodNames()),
                         TestName);

TEST(Together, MethodsDoNotInfluenceEachOther) {
  const std::vector<std::string> names = MethodNames();
  for (const Exact& exact : OpenExact(16)) {
    for (size_t first = 0; first < names.size(); first += exact.n_exact) {
      std::vector<Pair> pairs;
      for (size_t i = first; i < std::min(names.size(), first + exact.n_exact); ++i) {
        const int64_t size = std::max<int64_t>(35, MethodTraits(names[i]).budget.min);
        pairs.push_back(Begin(*exact.engine, names[i], 60 + 3 * static_cast<int>(i),
                              5 + static_cast<int>(i * 7 % 20), {.size = size}));
      }
      RunTogether(*exact.engine, pairs);
    }
  }
}

// With more rows than are exact the results are close to those alone, and independent of the
// number.
TEST(Together, ManySequencesAreClose) {
  const auto engine = OpenTiny(2);
  const auto run = [&](int n_sequences) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> all;
    for (int i = 0; i < n_sequences; ++i) {
      sessions.push_back(Open(*engine, "streaming", {.size = 24}));
      all.push_back(sessions.back().get());
      EXPECT_TRUE(all.back()->Prefill(Tokens(20 + i, i)).value());
    }
    Batch batch(*engine);
    for (const TokenId token : Tokens(12)) {
      EXPECT_TRUE(batch.Decode(all, std::vector<TokenId>(static_cast<size_t>(n_sequences), token))
                      .has_value());
    }
    return sessions;
  };
  const auto few = run(16), many = run(40);
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(Logits(*few[i]), Logits(*many[i]));
    const auto alone = Open(*engine, "streaming", {.size = 24});
    ASSERT_TRUE(alone->Prefill(Tokens(20 + static_cast<int>(i), static_cast<int>(i))).value());
    for (const TokenId token : Tokens(12)) ASSERT_TRUE(alone->Decode(token).has_value());
    for (size_t k = 0; k < alone->logits().size(); ++k) {
      ASSERT_NEAR(few[i]->logits()[k], alone->logits()[k], 2e-3);
    }
  }
}

}  // namespace
}  // namespace winnow::conformance
