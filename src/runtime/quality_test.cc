#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/quality_search.h"
#include "runtime/session.h"
#include "runtime/session_file.h"
#include "runtime/testing/tiny_engine.h"

// Prompts whose budget is searched (CompressionOptions::quality).
namespace winnow::runtime {
namespace {

using testing::Logits;
using testing::Tokens;

constexpr int64_t kPrompt = 270;

std::unique_ptr<Engine> Open(int64_t context = 1024) {
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.context = context;
  return testing::TinyEngine(spec, {.n_threads = 2});
}

SessionOptions Options(const std::string& method, double quality) {
  SessionOptions options;
  options.compression.method = compression::MakeMethod(method).value();
  options.compression.quality = quality;
  return options;
}

// The slots of every head.
std::vector<std::vector<int32_t>> Kept(const Session& session) {
  std::vector<std::vector<int32_t>> kept;
  const cache::Cache& cache = session.cache();
  for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
    for (int head = 0; head < cache.config().shape.n_kv_heads; ++head) {
      auto& positions = kept.emplace_back();
      for (const cache::Slot slot : cache.order(layer, head)) {
        positions.push_back(cache.positions(layer, head)[static_cast<size_t>(slot)]);
      }
    }
  }
  return kept;
}

class QualityTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> engine_ = Open();
  std::unique_ptr<Session> Read(const SessionOptions& options) const {
    auto session = Session::Make(*engine_, options).value();
    const auto read = session->Prefill(Tokens(kPrompt));
    EXPECT_TRUE(read.has_value() && *read);
    return session;
  }
};

// What is kept is what the budget that was found keeps without a search.
TEST_P(QualityTest, TheBudgetIsTheSmallestWithinTheTarget) {
  const auto full = Session::Make(*engine_, {}).value();
  ASSERT_TRUE(full->Prefill(Tokens(kPrompt)).value());
  int64_t last = kPrompt + 1;
  int n_searched = 0;
  for (const double target : {1e-9, 1e-2, 100.0}) {
    const auto session = Read(Options(GetParam(), target));
    const std::optional<QualityFound> found = session->quality();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->target, target);
    EXPECT_LE(found->budget, last) << "a larger target takes no more";
    last = found->budget;
    if (found->estimate.n_tokens == 0) {
      EXPECT_EQ(found->budget, kPrompt);
      EXPECT_EQ(session->kept(0), kPrompt);
      continue;
    }
    ++n_searched;
    EXPECT_LE(found->estimate.bound(), target);
    EXPECT_GE(found->estimate.p99, found->estimate.kl);
    EXPECT_EQ(session->budget(), found->budget);
    SessionOptions same = Options(GetParam(), 0);
    same.compression.size = found->budget;
    const auto sized = Read(same);
    EXPECT_EQ(Kept(*session), Kept(*sized));
    EXPECT_EQ(Logits(*session), Logits(*full)) << "those of the prompt's last token";
    ASSERT_TRUE(session->Decode(3).has_value());
    ASSERT_TRUE(sized->Decode(3).has_value());
    EXPECT_EQ(Logits(*session), Logits(*sized));
  }
  EXPECT_GE(n_searched, 1);
  EXPECT_LE(last, kPrompt / 30) << "100 nats are met by anything";
}

INSTANTIATE_TEST_SUITE_P(Methods, QualityTest,
                         ::testing::Values("winnow", "winnow:queries=window", "kvzip",
                                           "kvzip:plus=true", "attention-matching",
                                           "defensivekv:layer=true", "snapkv", "h2o", "d2o",
                                           "streaming", "keydiff"));

// A target no budget meets leaves the full cache, bit for bit.
TEST(Quality, WhatNothingMeetsKeepsEverything) {
  const auto engine = Open();
  const auto full = Session::Make(*engine, {}).value();
  const auto session = Session::Make(*engine, Options("winnow", 1e-12)).value();
  ASSERT_TRUE(full->Prefill(Tokens(kPrompt)).value());
  ASSERT_TRUE(session->Prefill(Tokens(kPrompt)).value());
  EXPECT_EQ(session->quality()->share, 1);
  ASSERT_TRUE(full->Decode(3).has_value());
  ASSERT_TRUE(session->Decode(3).has_value());
  EXPECT_EQ(Logits(*session), Logits(*full));
}

// Too short to be worth it: left whole. A later prompt that makes the text long is searched for.
TEST(Quality, ShortPromptsStayUntilTheTextIsLong) {
  const auto engine = Open();
  for (const char* method : {"winnow", "snapkv", "h2o"}) {
    const auto session = Session::Make(*engine, Options(method, 100)).value();
    ASSERT_TRUE(session->Prefill(Tokens(20)).value());
    EXPECT_FALSE(session->quality().has_value());
    EXPECT_EQ(session->kept(0), 20);
    ASSERT_TRUE(session->Decode(3).has_value());
    EXPECT_EQ(session->kept(0), 21);
    ASSERT_TRUE(session->Prefill(Tokens(400)).value()) << method;
    ASSERT_TRUE(session->quality().has_value()) << method;
    EXPECT_LT(session->kept(0), 100);
    // Then the share stays, and nothing is searched again.
    const double share = session->quality()->share;
    ASSERT_TRUE(session->Prefill(Tokens(350)).value());
    EXPECT_EQ(session->quality()->share, share);
    EXPECT_NEAR(static_cast<double>(session->budget()), share * 771, 1 + 0.01 * 771);
  }
}

TEST(Quality, ForksAndFilesKnowIt) {
  const auto engine = Open();
  const auto session = Session::Make(*engine, Options("snapkv", 100)).value();
  ASSERT_TRUE(session->Prefill(Tokens(kPrompt)).value());
  const auto fork = session->Fork().value();
  EXPECT_EQ(fork->quality()->budget, session->quality()->budget);
  EXPECT_EQ(fork->budget(), session->budget());
  const std::string path = ::testing::TempDir() + "winnow_quality_session";
  ASSERT_TRUE(SaveSession(*session, path).has_value());
  const auto options = SessionOptionsFrom(ReadSessionInfo(path).value());
  EXPECT_EQ(options->compression.quality, 100);
  EXPECT_FALSE(RestoreSession(*engine, Options("snapkv", 99), path).has_value());
  const auto restored = RestoreSession(*engine, Options("snapkv", 100), path).value();
  EXPECT_EQ(restored->budget(), session->budget());
  // The share stays, as in the session that was saved.
  ASSERT_TRUE(restored->Prefill(Tokens(kPrompt)).value());
  ASSERT_TRUE(fork->Prefill(Tokens(kPrompt)).value());
  EXPECT_EQ(restored->budget(), fork->budget());
  EXPECT_EQ(Logits(*restored), Logits(*fork));
  std::filesystem::remove(path);
  session->Reset();
  EXPECT_FALSE(session->quality().has_value());
}

TEST(Quality, StopsWhereProgressSaysSo) {
  const auto engine = Open();
  for (const char* method : {"winnow", "snapkv"}) {
    int n_told = 0;
    double last = 0;
    const auto count = Session::Make(*engine, Options(method, 1e-9)).value();
    Session::PrefillOptions prefill;
    prefill.progress = [&](double done) {
      EXPECT_GE(done, last);
      EXPECT_LE(done, 1);
      last = done;
      ++n_told;
      return true;
    };
    ASSERT_TRUE(count->Prefill(Tokens(kPrompt), prefill).value());
    EXPECT_EQ(last, 1);
    for (const int stop : {1, n_told / 3, n_told / 2, n_told - 1}) {
      int n = 0;
      prefill.progress = [&](double) { return ++n < stop; };
      const auto session = Session::Make(*engine, Options(method, 1e-9)).value();
      const auto read = session->Prefill(Tokens(kPrompt), prefill);
      ASSERT_TRUE(read.has_value()) << read.error().message;
      EXPECT_FALSE(*read) << method << " " << stop;
      EXPECT_EQ(session->n_tokens(), 0);
      EXPECT_FALSE(session->quality().has_value());
    }
  }
}

TEST(Quality, WithoutRoomForProbesSaysSo) {
  const auto engine = Open(kPrompt + 10);
  for (const char* method : {"winnow", "snapkv"}) {
    const auto session = Session::Make(*engine, Options(method, 0.1)).value();
    const auto read = session->Prefill(Tokens(kPrompt));
    ASSERT_FALSE(read.has_value());
    EXPECT_NE(read.error().message.find("leaves room for 10 in the context of 280"),
              std::string::npos)
        << read.error().message;
    EXPECT_EQ(session->n_tokens(), 0);
    // What was read before is still there.
    ASSERT_TRUE(session->Prefill(Tokens(8)).value());
    EXPECT_FALSE(session->Prefill(Tokens(kPrompt)).has_value());
    EXPECT_EQ(session->n_tokens(), 8);
    ASSERT_TRUE(session->Decode(3).has_value());
  }
}

// Only what is done in the end is told.
TEST(Quality, WhatIsTriedIsNoPlan) {
  const auto engine = Open();
  for (const char* method : {"winnow", "snapkv"}) {
    SessionOptions options = Options(method, 100);
    int64_t n_evicted = 0;
    options.compression.on_plan = [&](const cache::Plan& plan, const PlanContext&) {
      for (const cache::HeadPlan& head : plan.heads) n_evicted += std::ssize(head.evict);
    };
    const auto session = Session::Make(*engine, options).value();
    ASSERT_TRUE(session->Prefill(Tokens(kPrompt)).value());
    EXPECT_GT(n_evicted, 0);
    const cache::CacheShape& shape = session->cache().config().shape;
    EXPECT_LE(n_evicted, kPrompt * shape.n_layers * shape.n_kv_heads);
  }
}

}  // namespace
}  // namespace winnow::runtime
