#include "runtime/generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/rng.h"
#include "base/sanitizer.h"

namespace winnow::runtime {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Everything off, temperature 1: the plain softmax.
SamplerConfig Plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .typical_p = 1};
}

Sampler Make(const SamplerConfig& config, int64_t vocabulary) {
  return Sampler::Make(config, vocabulary).value();
}

std::vector<float> LogProbabilities(const std::vector<double>& probabilities) {
  std::vector<float> logits(probabilities.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(std::log(probabilities[i]));
  }
  return logits;
}

// Share of each token in `n` draws.
std::vector<double> Shares(const SamplerConfig& config, const std::vector<float>& logits,
                           int n = 40000) {
  Sampler sampler = Make(config, static_cast<int64_t>(logits.size()));
  std::vector<double> shares(logits.size());
  for (int i = 0; i < n; ++i)
    shares[static_cast<size_t>(sampler.Sample(logits).value())] += 1.0 / n;
  return shares;
}

void ExpectShares(const std::vector<double>& shares, const std::vector<double>& expected) {
  ASSERT_EQ(shares.size(), expected.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    if (expected[i] == 0) {
      EXPECT_EQ(shares[i], 0) << "token " << i;
    } else {
      EXPECT_NEAR(shares[i], expected[i], 0.012) << "token " << i;  // five sigma of 40000 draws
    }
  }
}

TEST(Sampler, DrawsFromTheSoftmax) {
  ExpectShares(Shares(Plain(), LogProbabilities({0.5, 0.3, 0.15, 0.05})), {0.5, 0.3, 0.15, 0.05});
}

TEST(Sampler, TemperatureTwoTakesTheSquareRoot) {
  SamplerConfig config = Plain();
  config.temperature = 2;
  // The square roots of 0.64, 0.16, 0.04 are 0.8, 0.4, 0.2; they sum to 1.4.
  ExpectShares(Shares(config, LogProbabilities({0.64, 0.16, 0.04})),
               {0.8 / 1.4, 0.4 / 1.4, 0.2 / 1.4});
}

TEST(Sampler, TopKKeepsTheKMostLikely) {
  SamplerConfig config = Plain();
  config.top_k = 2;
  ExpectShares(Shares(config, LogProbabilities({0.1, 0.45, 0.15, 0.3})), {0, 0.6, 0, 0.4});
}

TEST(Sampler, TopKTiesGoToTheLowerId) {
  SamplerConfig config = Plain();
  config.top_k = 2;
  ExpectShares(Shares(config, {1, 1, 1, 1}), {0.5, 0.5, 0, 0});
}

TEST(Sampler, TopPIncludesTheTokenThatCrosses) {
  SamplerConfig config = Plain();
  config.top_p = 0.6;
  ExpectShares(Shares(config, LogProbabilities({0.15, 0.5, 0.3, 0.05})), {0, 0.625, 0.375, 0});
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  SamplerConfig config = Plain();
  config.min_p = 0.29;  // of 0.5: 0.145
  ExpectShares(Shares(config, LogProbabilities({0.5, 0.3, 0.15, 0.05})),
               {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0});
}

TEST(Sampler, TopPCountsBeforeMinP) {
  SamplerConfig config = Plain();
  config.top_p = 0.9;  // of everything: 0.4 + 0.3 + 0.2
  config.min_p = 0.6;  // then 0.24
  ExpectShares(Shares(config, LogProbabilities({0.4, 0.3, 0.2, 0.1})), {4.0 / 7, 3.0 / 7, 0, 0});
}

TEST(Sampler, TypicalDropsTheTooLikelyFirst) {
  // Entropy of {0.6, 0.2, 0.2} is 0.950 nat; surprises are 0.511, 1.609, 1.609: distances 0.439,
  // 0.659, 0.659.
  SamplerConfig config = Plain();
  config.typical_p = 0.5;
  ExpectShares(Shares(config, LogProbabilities({0.6, 0.2, 0.2})), {1, 0, 0});
  // Entropy of {0.7, 0.06 x 5} is 1.094 nat; surprises 0.357 and 2.813: distances 0.737 and 1.720.
  // Entropy of {0.4, 0.04 x 15} is 2.298 nat; surprises 0.916 and 3.219: distances 1.381 and 0.921:
  // the likely one goes.
  std::vector<double> flat(16, 0.04);
  flat[0] = 0.4;
  std::vector<double> expected(16, 1.0 / 15);
  expected[0] = 0;
  config.typical_p = 0.59;  // the fifteen have 0.6
  ExpectShares(Shares(config, LogProbabilities(flat)), expected);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOnTies) {
  SamplerConfig config;
  config.temperature = 0;
  EXPECT_EQ(Make(config, 4).Sample(std::vector<float>{1, 3, 3, 2}).value(), 1);
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegative) {
  SamplerConfig config;
  config.temperature = 0;
  config.repeat_penalty = 2;
  Sampler sampler = Make(config, 3);
  sampler.Accept(0);
  EXPECT_EQ(sampler.Sample(std::vector<float>{4, 2.1f, 0}).value(), 1);     // 4 / 2 < 2.1
  EXPECT_EQ(sampler.Sample(std::vector<float>{4, 1.9f, 0}).value(), 0);     // 4 / 2 > 1.9
  EXPECT_EQ(sampler.Sample(std::vector<float>{-1, -1.9f, -9}).value(), 1);  // -1 * 2 < -1.9
  EXPECT_EQ(sampler.Sample(std::vector<float>{-1, -2.1f, -9}).value(), 0);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  SamplerConfig config;
  config.temperature = 0;
  config.presence_penalty = 1;
  config.frequency_penalty = 0.5;
  Sampler sampler = Make(config, 2);
  for (int i = 0; i < 3; ++i) sampler.Accept(0);  // 1 + 3 * 0.5 = 2.5
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.6f, 0}).value(), 0);
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.4f, 0}).value(), 1);
  sampler.Reset();
  EXPECT_EQ(sampler.Sample(std::vector<float>{2.4f, 0}).value(), 0);
}

TEST(Sampler, PenaltiesLookBackOnlySoFar) {
  SamplerConfig config;
  config.temperature = 0;
  config.presence_penalty = 5;
  config.repeat_last_n = 2;
  Sampler sampler = Make(config, 4);
  const std::vector<float> logits = {3, 2, 1, 0};
  sampler.Accept(0);
  sampler.Accept(1);
  EXPECT_EQ(sampler.Sample(logits).value(), 2);
  sampler.Accept(2);  // token 0 is out of range
  EXPECT_EQ(sampler.Sample(logits).value(), 0);
  config.repeat_last_n = -1;
  Sampler whole = Make(config, 4);
  for (const int32_t token : {0, 1, 2}) whole.Accept(token);
  EXPECT_EQ(whole.Sample(logits).value(), 3);
  config.repeat_last_n = 0;
  Sampler none = Make(config, 4);
  none.Accept(0);
  EXPECT_EQ(none.Sample(logits).value(), 0);
}

TEST(Sampler, BiasBansAndForces) {
  SamplerConfig config;
  config.temperature = 0;
  config.logit_bias = {{0, -kInf}, {2, 5.0f}};
  EXPECT_EQ(Make(config, 3).Sample(std::vector<float>{9, 4, 0}).value(), 2);
  config.logit_bias = {{1, kInf}};
  EXPECT_EQ(Make(config, 3).Sample(std::vector<float>{9, -4, 0}).value(), 1);
  config = Plain();
  config.logit_bias = {{0, -kInf}};
  ExpectShares(Shares(config, LogProbabilities({0.5, 0.25, 0.25})), {0, 0.5, 0.5});
}

TEST(Sampler, BadLogitsAreNeverChosenWhileAnotherIsLeft) {
  for (const int top_k : {0, 2}) {
    SamplerConfig config = Plain();
    config.top_k = top_k;
    ExpectShares(Shares(config, {kNan, 0, -kInf, kNan}, 100), {0, 1, 0, 0});
    ExpectShares(Shares(config, {0, kInf, 1, kNan}, 100), {0, 1, 0, 0});
  }
  SamplerConfig greedy;
  greedy.temperature = 0;
  EXPECT_EQ(Make(greedy, 3).Sample(std::vector<float>{kNan, -5, kNan}).value(), 1);
}

// Regression: token 0 was returned, whatever its logit.
TEST(Sampler, NoTokenIsLeft) {
  for (const double temperature : {0.0, 0.8}) {
    for (const int top_k : {0, 2}) {
      SamplerConfig config = Plain();
      config.temperature = temperature;
      config.top_k = top_k;
      config.repeat_penalty = 1.5;
      EXPECT_FALSE(Make(config, 2).Sample(std::vector<float>{kNan, -kInf}).has_value());
      config.logit_bias = {{0, -kInf}, {2, -kInf}};
      Sampler sampler = Make(config, 3);
      sampler.Accept(1);
      EXPECT_EQ(sampler.Sample(std::vector<float>{9, -4, 5}).value(), 1);
      const auto banned = sampler.Sample(std::vector<float>{9, -kInf, 5});  // a grammar's mask
      ASSERT_FALSE(banned.has_value());
      EXPECT_EQ(banned.error().message,
                "sampling: `logit_bias` bans every token that could come next");
      EXPECT_EQ(banned.error().code, ErrorCode::kInvalid);
    }
  }
}

// Regression: the sums below became -inf, and `logit_bias` was blamed.
TEST(Sampler, SumsBeyondTheRangeOfFloatStayPossible) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const double temperature : {0.0, 0.8}) {
    SamplerConfig config = Plain();
    config.temperature = temperature;
    config.repeat_penalty = 1e6;
    Sampler penalized = Make(config, 1);
    penalized.Accept(0);
    EXPECT_EQ(penalized.Sample(std::vector<float>{-kMax}).value(), 0);
    EXPECT_FALSE(penalized.Sample(std::vector<float>{-kInf}).has_value());
    config.repeat_penalty = 1e-3;
    Sampler rewarded = Make(config, 2);
    rewarded.Accept(1);
    EXPECT_EQ(rewarded.Sample(std::vector<float>{-kMax, kMax}).value(), 1);
    config.logit_bias = {{0, -kMax}};
    EXPECT_EQ(Make(config, 1).Sample(std::vector<float>{-kMax}).value(), 0);
    config.logit_bias = {{0, kInf}};
    EXPECT_EQ(Make(config, 2).Sample(std::vector<float>{-kMax, 5}).value(), 0);
    EXPECT_EQ(Make(config, 2).Sample(std::vector<float>{-kInf, 5}).value(), 1);
  }
}

TEST(Sampler, SameSeedSameTokens) {
  std::vector<float> logits(1000);
  Rng rng(1);
  for (float& logit : logits) logit = static_cast<float>(4 * rng.Uniform());
  SamplerConfig config;
  const auto draw = [&](uint64_t seed) {
    config.seed = seed;
    Sampler sampler = Make(config, 1000);
    std::vector<int32_t> tokens(50);
    for (int32_t& token : tokens) token = sampler.Sample(logits).value();
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

// A reference for the chain: full sorts, one step after another, in exactly the documented order.
std::set<int32_t> SurvivorsPlainly(const SamplerConfig& c, const std::vector<float>& logits) {
  struct Entry {
    int32_t token;
    double p;
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    entries.push_back({static_cast<int32_t>(i), std::exp(static_cast<double>(logits[i]))});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.p > b.p; });
  const auto normalise = [&] {
    double total = 0;
    for (const Entry& e : entries) total += e.p;
    for (Entry& e : entries) e.p /= total;
  };
  if (c.top_k > 0 && entries.size() > static_cast<size_t>(c.top_k)) {
    entries.resize(static_cast<size_t>(c.top_k));
  }
  normalise();
  if (c.typical_p < 1) {
    double entropy = 0;
    for (const Entry& e : entries) entropy -= e.p * std::log(e.p);
    std::vector<Entry> typical = entries;
    std::stable_sort(typical.begin(), typical.end(), [&](const Entry& a, const Entry& b) {
      return std::abs(-std::log(a.p) - entropy) < std::abs(-std::log(b.p) - entropy);
    });
    double sum = 0;
    size_t n = 0;
    while (n < typical.size() && sum < c.typical_p) sum += typical[n++].p;
    typical.resize(n);
    entries = typical;
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.p > b.p; });
    normalise();
  }
  double sum = 0;
  size_t n = 0;
  while (n < entries.size() && (n == 0 || sum < c.top_p)) sum += entries[n++].p;
  entries.resize(n);
  const double min = c.min_p * entries[0].p;
  std::set<int32_t> tokens;
  for (const Entry& e : entries) {
    if (e.p >= min) tokens.insert(e.token);
  }
  return tokens;
}

TEST(Sampler, FastSelectionAgreesWithThePlainChain) {
#ifdef WINNOW_SANITIZES_MEMORY
  constexpr int kRounds = 15;
#else
  constexpr int kRounds = 60;
#endif
  Rng rng(3);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> logits(700);
    for (float& logit : logits) logit = static_cast<float>(6 * rng.Uniform());
    SamplerConfig config;
    // All remaining tokens are nearly equally likely, so that each is drawn soon.
    config.temperature = 1e5;
    config.top_k = rng.Below(2) == 0 ? 0 : 1 + static_cast<int>(rng.Below(60));
    config.top_p = rng.Below(3) == 0 ? 1 : 0.05 + 0.9 * rng.Uniform();
    config.min_p = rng.Below(2) == 0 ? 0 : 0.5 * rng.Uniform();
    config.typical_p = rng.Below(2) == 0 ? 1 : 0.1 + 0.8 * rng.Uniform();
    config.seed = static_cast<uint64_t>(round);
    const std::set<int32_t> expected = SurvivorsPlainly(config, logits);
    Sampler sampler = Make(config, 700);
    std::set<int32_t> drawn;
    for (size_t i = 0; i < 20 * expected.size() + 100; ++i)
      drawn.insert(sampler.Sample(logits).value());
    EXPECT_EQ(drawn, expected) << "top_k " << config.top_k << " top_p " << config.top_p << " min_p "
                               << config.min_p << " typical_p " << config.typical_p;
  }
}

TEST(Sampler, RefusesBadValuesByName) {
  const auto message = [](const SamplerConfig& config) {
    const auto made = Sampler::Make(config, 10);
    return made.has_value() ? std::string() : made.error().message;
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message({.top_p = 1.5}), "sampling: top_p is 1.5, expected 0 to 1");
  EXPECT_NE(message({.temperature = std::nan("")}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.temperature = INFINITY}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.min_p = -0.1}).find("min_p"), std::string::npos);
  EXPECT_NE(message({.typical_p = std::nan("")}).find("typical_p"), std::string::npos);
  EXPECT_NE(message({.repeat_penalty = 0}).find("repeat_penalty"), std::string::npos);
  EXPECT_NE(message({.repeat_last_n = -2}).find("repeat_last_n"), std::string::npos);
  EXPECT_NE(message({.presence_penalty = INFINITY}).find("presence_penalty"), std::string::npos);
  EXPECT_EQ(message({.logit_bias = {{10, 1.0f}}}),
            "sampling: logit_bias names token 10, expected 0 to 9");
  EXPECT_NE(message({.logit_bias = {{1, kNan}}}).find("NaN"), std::string::npos);
}

}  // namespace
}  // namespace winnow::runtime
