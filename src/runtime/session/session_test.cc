#include "runtime/session/session.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "compression/registry.h"
#include "gguf/testing/builder.h"
#include "kernels/backends.h"
#include "runtime/engine.h"
#include "runtime/session/repeat_entries.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using model::testing::MakeTinySpec;
using testing::kVocabulary;
using testing::Logits;
using testing::Tokens;

std::unique_ptr<Engine> Open(EngineOptions options = {}) {
  if (options.n_threads == 0) options.n_threads = testing::kThreads;
  return testing::TinyEngine(MakeTinySpec("llama"), options);
}

TEST(Session, DecodeContinuesPrefill) {
  const auto engine = Open();
  const auto at_once = Session::Make(*engine, {}).value();
  const auto stepwise = Session::Make(*engine, {}).value();
  EXPECT_TRUE(at_once->logits().empty());
  const std::vector<TokenId> tokens = Tokens(9);
  ASSERT_TRUE(at_once->Prefill(tokens).value());
  ASSERT_TRUE(stepwise->Prefill(std::span(tokens).first(4)).value());
  for (const TokenId token : std::span(tokens).subspan(4)) {
    ASSERT_TRUE(stepwise->Decode(token).has_value());
  }
  ASSERT_EQ(at_once->logits().size(), static_cast<size_t>(kVocabulary));
  for (int i = 0; i < kVocabulary; ++i) {
    EXPECT_NEAR(at_once->logits()[static_cast<size_t>(i)],
                stepwise->logits()[static_cast<size_t>(i)], 2e-3);
  }
  EXPECT_EQ(stepwise->n_tokens(), 9);
  EXPECT_EQ(std::vector<TokenId>(stepwise->tokens().begin(), stepwise->tokens().end()), Tokens(9));
}

TEST(Session, TruncateForgetsExactly) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {}).value();
  ASSERT_TRUE(session->Prefill(Tokens(9)).value());
  const std::vector<float> first = Logits(*session);
  ASSERT_TRUE(session->Decode(3).has_value());
  ASSERT_TRUE(session->Decode(4).has_value());
  session->Truncate(8);
  EXPECT_TRUE(session->logits().empty());
  EXPECT_EQ(session->n_tokens(), 8);
  ASSERT_TRUE(session->Decode(Tokens(9)[8]).has_value());
  const std::vector<float> again = Logits(*session);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(again[i], first[i], 2e-3);

  session->Reset();
  EXPECT_EQ(session->n_tokens(), 0);
  EXPECT_EQ(session->cache_bytes(), 0);
  ASSERT_TRUE(session->Prefill(Tokens(9)).value());
  EXPECT_EQ(Logits(*session), first);
}

TEST(Session, KeepsTheCommonPrefixButComputesTheLastTokenWhereItsLogitsAreGone) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {}).value();
  ASSERT_TRUE(session->Prefill(std::vector<TokenId>{1, 2, 3, 4, 5}).value());
  EXPECT_EQ(session->KeepCommonPrefix(std::vector<TokenId>{1, 2, 3, 9, 9, 9}), 3);
  EXPECT_EQ(session->n_tokens(), 3);
  EXPECT_EQ(session->KeepCommonPrefix(std::vector<TokenId>{1, 2, 3}), 2);
  EXPECT_EQ(session->KeepCommonPrefix(std::vector<TokenId>{1, 2, 3, 4}), 2);
  EXPECT_EQ(session->KeepCommonPrefix(std::vector<TokenId>{7, 2}), 0);
  EXPECT_EQ(session->KeepCommonPrefix({}), 0);
  ASSERT_TRUE(session->Prefill(std::vector<TokenId>{1, 2, 3}).value());
  const std::vector<float> logits = Logits(*session);
  EXPECT_EQ(session->KeepCommonPrefix(std::vector<TokenId>{1, 2, 3}), 3);
  EXPECT_EQ(Logits(*session), logits);
}

TEST(Session, GivesTheRowsOfLogitsThatAreAskedFor) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {.row_block = 4}).value();
  int64_t next_row = 6;
  std::vector<float> last;
  Session::PrefillOptions options;
  options.logits_from = 6;
  options.on_logits = [&](int64_t first_row, std::span<const float> logits) {
    EXPECT_EQ(first_row, next_row);
    next_row += static_cast<int64_t>(logits.size()) / kVocabulary;
    last.assign(logits.end() - kVocabulary, logits.end());
  };
  ASSERT_TRUE(session->Prefill(Tokens(17), options).value());
  EXPECT_EQ(next_row, 17);
  EXPECT_EQ(Logits(*session), last);

  session->Reset();
  options.logits_from = -1;
  next_row = 16;
  ASSERT_TRUE(session->Prefill(Tokens(17), options).value());
  EXPECT_EQ(next_row, 17);
}

TEST(Session, SaysHowManyTokensFit) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {.context = 10}).value();
  EXPECT_EQ(session->capacity(), 10);
  ASSERT_TRUE(session->Prefill(Tokens(7)).value());
  const auto refused = session->Prefill(Tokens(4));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "session: 4 tokens more do not fit the context of 10 tokens: it has room for 3 after "
            "the 7 that it holds");
  EXPECT_EQ(session->n_tokens(), 7);
  EXPECT_EQ(session->CheckRoom(4).error().message, refused.error().message);
  EXPECT_TRUE(session->CheckRoom(3).has_value());
  EXPECT_TRUE(session->CheckRoom(-1).has_value());
  EXPECT_TRUE(session->Prefill(Tokens(3)).value());
  EXPECT_FALSE(session->Decode(1).has_value());
}

TEST(Session, NoNumberOfTokensIsTooLargeToBeRefused) {
  const auto engine = Open();
  for (const char* method : {"", "streaming", "h2o"}) {
    SessionOptions options{.context = 10};
    if (*method != 0) {
      options.compression = {.method = compression::MakeMethod(method).value(), .size = 8};
    }
    const auto session = Session::Make(*engine, options).value();
    ASSERT_TRUE(session->Prefill(Tokens(7)).value());
    const auto refused = session->CheckRoom(std::numeric_limits<int64_t>::max());
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("9223372036854775807 tokens more do not fit"),
              std::string::npos)
        << refused.error().message;
  }
}

TEST(Session, IsAsBeforeWhenStoppedOrRefused) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {.row_block = 2}).value();
  ASSERT_TRUE(session->Prefill(Tokens(7)).value());
  const std::vector<float> logits = Logits(*session);
  const int64_t n_bytes = session->cache_bytes();

  Session::PrefillOptions options;
  options.progress = [](double done) { return done < 0.4; };
  EXPECT_FALSE(session->Prefill(Tokens(20), options).value());
  EXPECT_FALSE(session->Prefill(std::vector<TokenId>{1, kVocabulary}).has_value());
  EXPECT_EQ(session->n_tokens(), 7);
  EXPECT_EQ(session->cache_bytes(), n_bytes);
  EXPECT_EQ(Logits(*session), logits);
}

// A step that breaks an invariant is rolled back, but has overwritten the logits.
TEST(Session, HasNoLogitsAfterABrokenInvariant) {
  const auto engine = Open({.survives_broken_invariants = true});
  for (const bool decodes : {true, false}) {
    const auto session = Session::Make(*engine, {}).value();
    ASSERT_TRUE(session->Prefill(Tokens(3)).value());
    ASSERT_TRUE(session->Reserve(0, 8).has_value());
    ASSERT_TRUE(RepeatEntries(*session, 3).has_value());  // not covered by the reservation
    for (TokenId token = 1; token <= 5; ++token) ASSERT_TRUE(session->Decode(token).has_value());
    const std::vector<float> logits = Logits(*session);
    const std::vector<TokenId> one = {7};
    const bool taken =
        decodes ? session->Decode(one[0]).has_value() : session->Prefill(one).has_value();
    ASSERT_FALSE(taken);
    EXPECT_EQ(session->n_tokens(), 11);
    EXPECT_TRUE(session->logits().empty());
    session->Truncate(10);
    ASSERT_TRUE(session->Decode(5).has_value());
    EXPECT_EQ(Logits(*session), logits);
  }
}

TEST(Session, RepeatsEntriesBehindTheLast) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {.context = 20}).value();
  ASSERT_TRUE(session->Prefill(Tokens(7)).value());
  const auto bytes_of_tokens = session->cache_bytes() / 7;
  ASSERT_TRUE(RepeatEntries(*session, 5).has_value());
  EXPECT_EQ(session->n_tokens(), 12);
  EXPECT_EQ(session->cache_bytes(), 12 * bytes_of_tokens);
  EXPECT_TRUE(session->logits().empty());
  const cache::Cache& cache = session->cache();
  const std::vector<int32_t> first = {0, 1, 2, 3, 4}, again = {7, 8, 9, 10, 11};
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    for (int head = 0; head < cache.config().shape.n_kv_heads; ++head) {
      EXPECT_EQ(cache.positions(layer, head)[11], 11);
      for (const kernels::HeadRows& rows : {cache.keys(layer, head), cache.values(layer, head)}) {
        std::vector<float> of_first(5 * static_cast<size_t>(rows.dim)), of_again(of_first.size());
        engine->backend().ReadRows(rows, first, of_first);
        engine->backend().ReadRows(rows, again, of_again);
        EXPECT_EQ(of_again, of_first);
      }
    }
  }
  ASSERT_TRUE(session->Decode(3).has_value());
  EXPECT_EQ(RepeatEntries(*session, 8).error().message,
            "session: 8 tokens more do not fit the context of 20 tokens: it has room for 7 after "
            "the 13 that it holds");
  session->Truncate(7);  // its length before
  ASSERT_TRUE(session->Decode(3).has_value());
  const auto other = Session::Make(*engine, {}).value();
  ASSERT_TRUE(other->Prefill(Tokens(7)).value());
  ASSERT_TRUE(other->Decode(3).has_value());
  EXPECT_EQ(Logits(*session), Logits(*other));
}

TEST(Session, CountsTheBytesOfTheCache) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, {.key_type = kernels::TensorType::kF32}).value();
  ASSERT_TRUE(session->Prefill(Tokens(5)).value());
  // 5 tokens, 3 layers, 2 KV heads, 16 floats of key and 16 halves of value.
  EXPECT_EQ(session->cache_bytes(), 5 * 3 * 2 * (16 * 4 + 16 * 2));
  EXPECT_EQ(session->cache_bytes_with_lists(), session->cache_bytes());  // nothing was evicted
  EXPECT_EQ(session->cache_bytes_full_f16(), 5 * 3 * 2 * (16 * 2 + 16 * 2));
}

TEST(Session, RefusesOptionsOutOfRange) {
  const auto engine = Open();
  const auto error = [&](const SessionOptions& options) {
    const auto session = Session::Make(*engine, options);
    return session.has_value() ? std::string("no error") : session.error().message;
  };
  EXPECT_EQ(error({.context = 129}), "session: a context of 129 tokens is out of range 1..128");
  EXPECT_EQ(error({.context = -1}), "session: a context of -1 tokens is out of range 1..128");
  EXPECT_EQ(error({.row_block = 0}), "session: row_block is 0, expected at least 1");
  EXPECT_EQ(error({.key_type = kernels::TensorType::kQ8_0}),
            "cache: keys of 16 elements per head cannot be stored as Q8_0, which needs a multiple "
            "of 32");
}

TEST(Session, WarnsBeyondTheTrainedContext) {
  struct Warnings final : Log {
    void Write(LogLevel level, std::string_view message) override {
      if (level == LogLevel::kWarning) all.emplace_back(message);
    }
    std::vector<std::string> all;
  } warnings;
  const auto file = testing::TinyFile(MakeTinySpec("llama"));
  ASSERT_TRUE(Engine::Open({.file = file, .n_threads = 2, .context = 128}, warnings).has_value());
  EXPECT_TRUE(warnings.all.empty());
  const auto engine =
      Engine::Open({.file = file, .n_threads = 2, .context = 300}, warnings).value();
  ASSERT_EQ(warnings.all.size(), 1u);
  EXPECT_NE(warnings.all[0].find("context of 300 tokens is longer than the 128"),
            std::string::npos);
  EXPECT_EQ(Session::Make(*engine, {}).value()->capacity(), 300);
}

TEST(Session, EveryTargetGivesNearlyTheSame) {
  std::vector<std::string> targets = kernels::CpuTargets();
  std::vector<float> expected;
  targets.insert(targets.begin(), "reference");
  for (const std::string& target : targets) {
    const auto engine = Open({.target = target});
    const auto session = Session::Make(*engine, {}).value();
    ASSERT_TRUE(session->Prefill(Tokens(9)).value());
    if (expected.empty()) expected = Logits(*session);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(session->logits()[i], expected[i], 2e-3) << target;
    }
  }
}

TEST(Session, EngineErrorsNameTheFile) {
  NullLog log;
  const auto absent = Engine::Open({.model_path = "/nowhere/absent.gguf"}, log);
  ASSERT_FALSE(absent.has_value());
  const std::string& message = absent.error().message;
  EXPECT_NE(message.find("/nowhere/absent.gguf"), std::string::npos) << message;
  EXPECT_EQ(message.find("/nowhere/absent.gguf"), message.rfind("/nowhere/absent.gguf"));
  EngineOptions options = {.file = testing::TinyFile(MakeTinySpec("llama")), .n_threads = -2};
  EXPECT_EQ(Engine::Open(options, log).error().message, "engine: threads is -2, expected 1..512");
  options.n_threads = 2;
  options.target = "Z80";
  const auto target = Engine::Open(options, log);
  ASSERT_FALSE(target.has_value());
  EXPECT_NE(target.error().message.find("Z80"), std::string::npos) << target.error().message;
}

// Regression: the name was left out if it occurred anywhere in the message.
TEST(Session, EngineErrorsNameAFileOfOneLetter) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("winnow_engine_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  gguf::testing::Builder().String("general.architecture", "zebra").Write("m");
  NullLog log;
  const auto unknown = Engine::Open({.model_path = "m"}, log);
  const auto absent = Engine::Open({.model_path = "o"}, log);
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_TRUE(unknown.error().message.starts_with("m: model: the architecture 'zebra' is not"))
      << unknown.error().message;
  ASSERT_FALSE(absent.has_value());
  EXPECT_TRUE(absent.error().message.starts_with("gguf: o: cannot open")) << absent.error().message;
}

}  // namespace
}  // namespace winnow::runtime
