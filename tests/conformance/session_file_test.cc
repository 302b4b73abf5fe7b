#include <cstdio>

#include "fixture.h"
#include "runtime/store/session_file.h"

namespace winnow::conformance {
namespace {

class EveryMethodSaved : public ::testing::TestWithParam<std::string> {};

// Saves and restores a session after a prompt and some tokens, then continues with another prompt.
TEST_P(EveryMethodSaved, GoesOnAsIfNothingHadHappened) {
  const auto engine = OpenTiny(2);
  const SessionShape shape = {.size = std::max<int64_t>(40, MethodTraits(GetParam()).budget.min)};
  const auto session = Open(*engine, GetParam(), shape);
  ASSERT_TRUE(session->Prefill(Tokens(90)).value());
  for (const TokenId token : Tokens(12, 3)) ASSERT_TRUE(session->Decode(token).has_value());

  std::string path = ::testing::TempDir() + "winnow-" + TestName({GetParam(), 0}) + ".session";
  const auto saved = runtime::SaveSession(*session, path);
  ASSERT_TRUE(saved.has_value()) << saved.error().message;
  auto restored = runtime::RestoreSession(*engine,
                                          {.context = session->cache().capacity(),
                                           .key_type = shape.type,
                                           .value_type = shape.type,
                                           .compression = session->compression()},
                                          path);
  std::remove(path.c_str());
  ASSERT_TRUE(restored.has_value()) << restored.error().message;
  Session& again = **restored;
  EXPECT_EQ(again.cache_bytes(), session->cache_bytes());
  EXPECT_EQ(again.budget(), session->budget());
  EXPECT_EQ(KeptEverywhere(again), KeptEverywhere(*session));
  EXPECT_EQ(Logits(again), Logits(*session));
  for (Session* one : {&again, session.get()}) {
    ASSERT_TRUE(one->Prefill(Tokens(30, 11)).value());
    for (const TokenId token : Tokens(20, 8)) ASSERT_TRUE(one->Decode(token).has_value());
  }
  EXPECT_EQ(KeptEverywhere(again), KeptEverywhere(*session));
  EXPECT_EQ(Logits(again), Logits(*session));
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethodSaved, ::testing::ValuesIn(MethodsAndVariants()),
                         TestName);

}  // namespace
}  // namespace winnow::conformance
