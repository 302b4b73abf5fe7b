#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitizer.h"
#include "compression/forwarding_method.h"
#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "runtime/budget/quality_search.h"
#include "runtime/session/session.h"
#include "runtime/store/session_file.h"
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
  return testing::TinyEngine(spec);
}

SessionOptions Options(const std::string& method, double quality) {
  return {.compression = {.method = compression::MakeMethod(method).value(), .quality = quality}};
}

std::unique_ptr<Session> ReadPlain(Engine& engine, const std::vector<TokenId>& tokens) {
  auto session = Session::Make(engine, {}).value();
  EXPECT_TRUE(session->Prefill(tokens).value());
  return session;
}

// Positions that every head keeps, oldest first.
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

class QualityTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine_ = Open();
  std::unique_ptr<Session> Read(const SessionOptions& options) const {
    auto session = Session::Make(*engine_, options).value();
    const auto read = session->Prefill(Tokens(kPrompt));
    EXPECT_TRUE(read.has_value() && *read);
    return session;
  }
};

// The kept entries are those that the found budget keeps without a search.
TEST_P(QualityTest, TheBudgetIsTheSmallestWithinTheTarget) {
  const auto full = ReadPlain(*engine_, Tokens(kPrompt));
  int64_t last = kPrompt + 1, n_searched = 0;
  for (const double target : {1e-9, 1e-2, 100.0}) {
    const auto session = Read(Options(GetParam(), target));
    const std::optional<QualityFound> found = session->quality();
    ASSERT_TRUE(found.has_value());
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
  const int64_t least = compression::MakeMethod(GetParam()).value()->traits().budget.min;
  EXPECT_LE(last, std::max(least * 3 / 2, kPrompt / 30)) << "100 nats are met by anything";
}

bool LearnsForAllBudgets(const std::string& spec) {
  return (*compression::MakeMethod(spec))->traits().decisions.learns_for_all_budgets;
}

// Methods whose search differs; without sanitizers their variants and all others too.
std::vector<std::string> BudgetSpecs() {
  std::vector<std::string> specs = compression::testing::MethodNames();
#ifdef WINNOW_SANITIZES_MEMORY
  std::erase_if(specs, [](const std::string& spec) { return !LearnsForAllBudgets(spec); });
#else
  std::erase_if(specs, [](const std::string& spec) {
    return LearnsForAllBudgets(spec) || !(*compression::MakeMethod(spec))->traits().budget.needed;
  });
  for (const std::string& spec : compression::testing::MethodsAndVariants()) {
    if (LearnsForAllBudgets(spec)) specs.push_back(spec);
  }
#endif
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Methods, QualityTest, ::testing::ValuesIn(BudgetSpecs()));

#ifndef WINNOW_SANITIZES_MEMORY  // compares numbers of paths that other tests take too
// The same method, except that the search reads the prompt anew for every budget.
class ReadsAnew final : public compression::ForwardingMethod {
 public:
  explicit ReadsAnew(compression::MethodPtr method) : ForwardingMethod(std::move(method)) {
    traits_.decisions.learns_for_all_budgets = false;
  }
};

TEST(Quality, OneReadingFindsWhatManyFind) {
  const auto engine = Open();
  for (const std::string& spec : BudgetSpecs()) {
    if (!LearnsForAllBudgets(spec)) continue;
    for (const double target : {1e-2, 100.0}) {
      SessionOptions options = Options(spec, target);
      const auto once = Session::Make(*engine, options).value();
      options.compression.method = std::make_shared<ReadsAnew>(options.compression.method);
      const auto anew = Session::Make(*engine, options).value();
      ASSERT_TRUE(once->Prefill(Tokens(kPrompt)).value());
      ASSERT_TRUE(anew->Prefill(Tokens(kPrompt)).value());
      const QualityFound a = *once->quality(), b = *anew->quality();
      EXPECT_EQ(a.budget, b.budget) << spec;
      EXPECT_EQ(a.n_tried, b.n_tried);
      EXPECT_NEAR(a.estimate.kl, b.estimate.kl, 1e-6 * b.estimate.kl) << spec;
      EXPECT_NEAR(a.estimate.p99, b.estimate.p99, 1e-6 * b.estimate.p99);
      EXPECT_EQ(Kept(*once), Kept(*anew));
    }
  }
}
#endif

// Rows of logits from `first` on, of tokens read after the session's text.
std::vector<std::vector<float>> Rows(Session& session, std::span<const TokenId> tokens,
                                     int64_t first) {
  const int64_t n_before = session.n_tokens();
  std::vector<std::vector<float>> rows;
  Session::PrefillOptions options;
  options.logits_from = first;
  options.on_logits = [&](int64_t, std::span<const float> logits) {
    for (size_t at = 0; at < logits.size(); at += testing::kVocabulary) {
      const auto row = logits.subspan(at, testing::kVocabulary);
      rows.emplace_back(row.begin(), row.end());
    }
  };
  EXPECT_TRUE(session.Prefill(tokens, options).value());
  session.Truncate(n_before);
  return rows;
}

std::vector<double> Softmax(std::span<const float> logits) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) sum += p.emplace_back(std::exp(double{x}));
  for (double& x : p) x /= sum;
  return p;
}

TEST(QualitySearch, TheEstimateIsTheMeanKlDivergenceOfTheProbes) {
  const auto engine = Open();
  const auto full = ReadPlain(*engine, Tokens(kPrompt));
  const std::vector<TokenId> tokens = Tokens(kPrompt), others(tokens.rbegin(), tokens.rend());
  const auto other = ReadPlain(*engine, others);
  QualitySearch search = QualitySearch::Begin(*full, Tokens(kPrompt), 100, 1).value();
  std::vector<double> kls;
  for (const QualityProbe& probe : search.probes()) {
    const auto of_full = Rows(*full, probe.tokens, probe.first);
    const auto of_other = Rows(*other, probe.tokens, probe.first);
    ASSERT_EQ(std::ssize(of_full), std::ssize(probe.tokens) - probe.first);
    for (size_t row = 0; row < of_full.size(); ++row) {
      const std::vector<double> p = Softmax(of_full[row]), q = Softmax(of_other[row]);
      kls.push_back(0);
      for (size_t i = 0; i < p.size(); ++i) kls.back() += p[i] * std::log(p[i] / q[i]);
    }
  }
  ASSERT_GT(kls.size(), 64u) << "texts of the model, and parts";
  while (search.next()) ASSERT_TRUE(search.Try(*other).has_value());
  const QualityFound found = search.found();
  const double mean = std::accumulate(kls.begin(), kls.end(), 0.0) / std::ssize(kls);
  EXPECT_GT(mean, 0.01);
  EXPECT_NEAR(found.estimate.kl, mean, 1e-4 * mean);
  EXPECT_EQ(found.estimate.n_tokens, std::ssize(kls));
  EXPECT_LE(found.estimate.p99, *std::ranges::max_element(kls) * (1 + 1e-4));
  EXPECT_LE(found.budget, kPrompt / 30);
  search =
      QualitySearch::Begin(*ReadPlain(*engine, Tokens(kPrompt)), Tokens(kPrompt), mean, 1).value();
  while (search.next()) ASSERT_TRUE(search.Try(*other).has_value());
  EXPECT_EQ(search.found().budget, kPrompt) << "the standard errors come on top of the mean";
}

TEST(QualitySearch, AsksForThePartsThatThePromptHelpsMostWith) {
  const auto engine = Open();
  const std::vector<TokenId> prompt = Tokens(kPrompt);
  const auto full = ReadPlain(*engine, prompt);
  const QualitySearch search = QualitySearch::Begin(*full, prompt, 100, 1).value();
  const auto empty = Session::Make(*engine, {}).value();
  const auto loss = [](std::span<const std::vector<float>> rows, std::span<const TokenId> tokens) {
    double sum = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      sum -= std::log(Softmax(rows[i])[static_cast<size_t>(tokens[i])]);
    }
    return sum;
  };
  const auto gain = [&](const QualityProbe& probe) {
    const auto after = std::span(probe.tokens).subspan(static_cast<size_t>(probe.first) + 1);
    return loss(Rows(*empty, probe.tokens, probe.first), after) -
           loss(Rows(*full, probe.tokens, probe.first), after);
  };
  std::vector<double> chosen;
  QualityProbe probe;
  for (const QualityProbe& one : search.probes()) {
    if (one.first == 0) continue;  // the model's own text
    chosen.push_back(gain(one));
    probe = one;
  }
  ASSERT_EQ(chosen.size(), 4u);
  std::vector<double> all;
  for (int i = 0; i < 32; ++i) {
    const auto from = prompt.begin() + (kPrompt - 24) * (2 * i + 1) / 64;
    std::copy(from, from + 24, probe.tokens.end() - 24);
    all.push_back(gain(probe));
  }
  std::ranges::sort(all, std::ranges::greater());
  std::ranges::sort(chosen, std::ranges::greater());
  for (size_t i = 0; i < chosen.size(); ++i) EXPECT_NEAR(chosen[i], all[i], 1e-4);
  EXPECT_GT(all[3], all[31]);
}

// NaN logits are not within any target.
TEST(QualitySearch, WhatIsNoNumberIsNotWithinTheTarget) {
  constexpr TokenId kNan = 66;
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.context = 1024;
  NullLog log;
  const auto engine =
      Engine::Open({.file = testing::TinyFileWithNan(spec, kNan), .n_threads = 2}, log).value();
  std::vector<TokenId> prompt = Tokens(kPrompt);
  std::ranges::replace(prompt, kNan, 65);
  const auto found = [&](Session& compressed) {
    QualitySearch search =
        QualitySearch::Begin(*ReadPlain(*engine, prompt), prompt, 100, 1).value();
    while (search.next()) EXPECT_TRUE(search.Try(compressed).has_value());
    return search.found();
  };
  EXPECT_LE(found(*ReadPlain(*engine, prompt)).budget, kPrompt / 30);
  prompt[100] = kNan;
  const auto poisoned = ReadPlain(*engine, prompt);
  prompt[100] = 65;
  EXPECT_EQ(found(*poisoned).budget, kPrompt);
}

// A target that no budget meets leaves the full cache, bit for bit.
TEST(Quality, WhatNothingMeetsKeepsEverything) {
  const auto engine = Open();
  const auto full = ReadPlain(*engine, Tokens(kPrompt));
  const auto session = Session::Make(*engine, Options("winnow", 1e-12)).value();
  ASSERT_TRUE(session->Prefill(Tokens(kPrompt)).value());
  EXPECT_EQ(session->quality()->share, 1);
  ASSERT_TRUE(full->Decode(3).has_value());
  ASSERT_TRUE(session->Decode(3).has_value());
  EXPECT_EQ(Logits(*session), Logits(*full));
}

// Texts that are too short are left uncompressed. A later prompt that makes the text long is
// searched for.
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
    // From then on the share stays, and nothing is searched again.
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
  // The share stays the same as in the saved session.
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
    // Text that was read before is still there.
    ASSERT_TRUE(session->Prefill(Tokens(8)).value());
    EXPECT_FALSE(session->Prefill(Tokens(kPrompt)).has_value());
    EXPECT_EQ(session->n_tokens(), 8);
    ASSERT_TRUE(session->Decode(3).has_value());
  }
}

// Only plans that are finally applied are reported.
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
    EXPECT_LE(n_evicted, kPrompt * std::ssize(Kept(*session)));
  }
}

}  // namespace
}  // namespace winnow::runtime
