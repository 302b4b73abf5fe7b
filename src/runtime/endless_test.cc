#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/session.h"
#include "runtime/testing/tiny_engine.h"

// Texts longer than the context, and budgets near it.
namespace winnow::runtime {
namespace {

using testing::Tokens;

constexpr int kContext = 128;  // of the tiny model; it was trained for as much

class Endless : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Session>> Make(const std::string& spec, CompressionOptions compression) {
    compression.method = compression::MakeMethod(spec).value();
    return Session::Make(*engine_, {.compression = compression});
  }
  std::unique_ptr<Session> Open(const std::string& spec, const CompressionOptions& compression) {
    auto session = Make(spec, compression);
    EXPECT_TRUE(session.has_value()) << session.error().message;
    return std::move(session).value();
  }

  std::unique_ptr<Engine> engine_ = testing::TinyEngine(model::testing::TinySpecOf("llama"));
};

void ExpectFinite(const Session& session) {
  ASSERT_FALSE(session.logits().empty());
  for (const float logit : session.logits()) ASSERT_TRUE(std::isfinite(logit));
}

TEST_F(Endless, DefaultsGoPastTheContext) {
  for (const std::string spec : {"lm-infinite", "streaming", "local", "treekv"}) {
    SCOPED_TRACE(spec);
    const auto stepped = Open(spec, {.size = 64});
    for (const TokenId token : Tokens(3 * kContext)) {
      const auto decoded = stepped->Decode(token);
      ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    }
    ExpectFinite(*stepped);
    const auto chunked = Open(spec, {.size = 64, .prefill_chunk = 10});
    const auto prefilled = chunked->Prefill(Tokens(3 * kContext));
    ASSERT_TRUE(prefilled.has_value()) << prefilled.error().message;
    ExpectFinite(*chunked);
  }
}

}  // namespace
}  // namespace winnow::runtime
