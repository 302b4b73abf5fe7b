#include "fixture.h"

// heads=query: every query head keeps its own entries.
namespace winnow::conformance {
namespace {

// The spec with parameter heads=HEADS.
std::string WithHeads(const std::string& spec, const std::string& heads) {
  return spec + (spec.find(':') == std::string::npos ? ":" : ",") + "heads=" + heads;
}

// Every method and variant that has this parameter.
std::vector<std::string> MethodsOfQueryHeads() {
  std::vector<std::string> specs;
  for (const std::string& spec : MethodsAndVariants()) {
    const auto method = compression::MakeMethod(WithHeads(spec, "query"));
    if (method && (*method)->traits().storage.per_query_head) specs.push_back(spec);
  }
  return specs;
}

class QueryHeads : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string Spec(const std::string& heads) { return WithHeads(GetParam(), heads); }
  static std::unique_ptr<Session> Run(Engine& engine, const std::string& heads) {
    auto session = Open(engine, Spec(heads), {.size = 48});
    EXPECT_TRUE(session->Prefill(Tokens(150)).value());
    for (const TokenId token : Tokens(20, 3)) EXPECT_TRUE(session->Decode(token).has_value());
    return session;
  }
};

TEST_P(QueryHeads, WithOneQueryHeadAKvHeadNothingChanges) {
  const auto engine = OpenTiny(4);
  const auto of_kv_heads = Run(*engine, "kv");
  const auto of_query_heads = Run(*engine, "query");
  EXPECT_EQ(KeptEverywhere(*of_kv_heads), KeptEverywhere(*of_query_heads));
  EXPECT_EQ(Logits(*of_kv_heads), Logits(*of_query_heads));
  EXPECT_EQ(of_kv_heads->cache_bytes_with_lists(), of_query_heads->cache_bytes_with_lists());
}

TEST_P(QueryHeads, BytesAreThoseOfAllHeadsAndSharesOfTheModelsFullCache) {
  const auto engine = OpenTiny(2);
  const auto of_kv_heads = Run(*engine, "kv");
  const auto of_query_heads = Run(*engine, "query");
  EXPECT_EQ(NHeads(*of_query_heads), 4);
  EXPECT_EQ(of_query_heads->cache_bytes_full_f16(), of_kv_heads->cache_bytes_full_f16());
  if (!MethodTraits(GetParam()).budget.needed) return;  // heads find their own sizes
  EXPECT_EQ(TotalSlots(*of_query_heads), 2 * TotalSlots(*of_kv_heads));
}

TEST_P(QueryHeads, TakesAsMuchUnderALimitOnBytes) {
  const auto method = *compression::MakeMethod(Spec("query"));
  if (!method->traits().budget.needed) GTEST_SKIP() << "skipped: finds its own size";
  const auto engine = OpenTiny(2);
  // 3 layers, 2 KV heads of 16 dimensions in f16.
  constexpr int64_t kLimit = 3 * 2 * 64 * 200;
  int64_t budgets[2] = {};
  for (const std::string heads : {"kv", "query"}) {
    const CompressionOptions compression = {.method = *compression::MakeMethod(Spec(heads)),
                                            .memory_bytes = kLimit,
                                            .prefill_chunk = 16,
                                            .reserve_tokens = 16};
    const auto session =
        Session::Make(*engine, {.context = 2048, .compression = compression}).value();
    const auto read = session->Prefill(Tokens(400));
    // If layers share a budget, one layer may need all of a prompt.
    if (method->traits().decisions.prefill == compression::DecisionPolicy::Prefill::kLastLayer &&
        !read && heads == "kv" && read.error().code == ErrorCode::kTooLarge) {
      GTEST_SKIP() << "skipped: no budget holds the limit: " << read.error().message;
    }
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_LE(session->cache_bytes(), kLimit);
    EXPECT_GT(session->cache_bytes(), kLimit / 2);
    budgets[heads == "query"] = session->budget();
  }
  EXPECT_LT(budgets[1], budgets[0]);
}

INSTANTIATE_TEST_SUITE_P(Methods, QueryHeads, ::testing::ValuesIn(MethodsOfQueryHeads()), TestName);

TEST(MethodsOfQueryHeads, AreFound) { EXPECT_GE(MethodsOfQueryHeads().size(), 7u); }

TEST(QueryHeadsOfTwoMethods, MustAgree) {
  const auto prefill = *compression::MakeMethod("snapkv:heads=query");
  const auto refused = compression::WithDecode(prefill, *compression::MakeMethod("h2o"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("same parameter 'heads'"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(compression::WithDecode(prefill, *compression::MakeMethod("h2o:heads=query")));
}

}  // namespace
}  // namespace winnow::conformance
