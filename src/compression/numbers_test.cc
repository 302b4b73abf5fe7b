#include "compression/numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/sanitizer.h"
#include "compression/budget/budget.h"
#include "compression/registry.h"
#include "compression/score/pool.h"
#include "compression/select/select.h"
#include "compression/testing/every_method.h"
#include "compression/testing/harness.h"
#include "kernels/backends.h"

// Parts are total functions: they have one defined result for any scores.
namespace winnow::compression {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHuge = std::numeric_limits<double>::max();

using Sizes = std::vector<int64_t>;

TEST(ScoreOrderTest, NaNIsLowestAndTiesGoByAge) {
  const std::vector<double> scores = {0, kNaN, kInfinity, -kInfinity, -0.0, kNaN, kHuge};
  std::vector<int32_t> ranks(scores.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::sort(ranks.begin(), ranks.end(), WorstFirst{scores});
  EXPECT_EQ(ranks, (std::vector<int32_t>{1, 5, 3, 0, 4, 6, 2}));
  std::sort(ranks.begin(), ranks.end(), BestFirst{scores});
  EXPECT_EQ(ranks, (std::vector<int32_t>{2, 6, 4, 0, 3, 5, 1}));
}

TEST(CountFromTest, IsTheFloorWithinTheLimits) {
  EXPECT_EQ(CountFrom(2.999), 2);
  EXPECT_EQ(CountFrom(-0.5), 0);
  EXPECT_EQ(CountFrom(kNaN), 0);
  EXPECT_EQ(CountFrom(-kInfinity), 0);
  EXPECT_EQ(CountFrom(kInfinity), kMaxCount);
  EXPECT_EQ(CountFrom(1e300, 7), 7);
  EXPECT_EQ(CountFrom(7.5, 7), 7);
}

TEST(FractionTest, FallsBackWhereTheSumSaysNothing) {
  EXPECT_EQ(Fraction(1, 4, 0.5), 0.25);
  EXPECT_EQ(Fraction(0, 0, 0.5), 0.5);
  EXPECT_EQ(Fraction(1, kInfinity, 0.5), 0.5);
  EXPECT_EQ(Fraction(1, kNaN, 0.5), 0.5);
}

Sizes Shared(const std::vector<double>& preferences, int64_t total, int64_t max) {
  Sizes sizes(preferences.size());
  budget::Share(preferences, total, max, sizes);
  return sizes;
}

TEST(ShareTest, EveryPreferenceHasAShare) {
  EXPECT_EQ(Shared({1, 3}, 8, 100), (Sizes{2, 6}));
  EXPECT_EQ(Shared({0, 0}, 8, 100), (Sizes{4, 4}));
  EXPECT_EQ(Shared({kNaN, 1, -2}, 8, 100), (Sizes{0, 8, 0}));
  EXPECT_EQ(Shared({kNaN, kNaN}, 8, 100), (Sizes{4, 4}));
  EXPECT_EQ(Shared({kInfinity, 1, kInfinity}, 8, 100), (Sizes{4, 0, 4}));
  EXPECT_EQ(Shared({kHuge, kHuge, kHuge / 2}, 10, 100), (Sizes{4, 4, 2}));
  EXPECT_EQ(Shared({kInfinity, 1}, 8, 5), (Sizes{5, 3}));
}

// The entries of a region with these scores that a selector evicts, keeping n_keep.
std::vector<int32_t> Evicted(const select::SelectorPtr& selector, const std::vector<double>& scores,
                             int64_t n_keep) {
  const testing::Harness harness(*MakeMethod("full"), {.n_layers = 1});
  const kernels::Taps taps;
  Scratch scratch;
  const auto backend = kernels::MakeReferenceBackend();
  const LayerCall call = {.backend = *backend,
                          .cache = harness.cache(),
                          .state = cache::StateView(harness.cache()),
                          .scratch = scratch,
                          .taps = &taps};
  std::vector<int32_t> evicted;
  selector->Evict({.call = call,
                   .kv_head = 0,
                   .region = {.begin = 2, .end = 2 + std::ssize(scores)},
                   .n_keep = n_keep,
                   .scores = scores},
                  evicted);
  return evicted;
}

TEST(SelectorsAreTotalTest, NaNGoesFirstAndInfinityLast) {
  const std::vector<double> scores = {kInfinity, kNaN, 1, -kInfinity, kNaN, 2};
  EXPECT_EQ(Evicted(select::TopK(), scores, 5), (std::vector<int32_t>{3}));
  EXPECT_EQ(Evicted(select::TopK(), scores, 4), (std::vector<int32_t>{3, 6}));
  EXPECT_EQ(Evicted(select::TopK(), scores, 2), (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(Evicted(select::Rounds({.block = 1, .rounds = {1}}), scores, 2),
            (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(Evicted(select::Representatives({}), scores, 2), (std::vector<int32_t>{3, 4, 5, 6}));
}

TEST(SelectorsAreTotalTest, BlocksOfNaNGoFirst) {
  const auto method = MakeMethod("treekv:block=1,sinks=0,recent=0");
  ASSERT_TRUE(method);
  testing::Harness harness(*method, {.budget = 3});
  harness.Prefill(5, testing::ByPosition({1, kNaN, 2, 3, 4}));
  EXPECT_EQ(harness.Evicted(), (std::vector<Position>{1, 2}));
}

TEST(SelectorsAreTotalTest, NothingToEvictEvictsNothing) {
  for (const auto& selector : {select::TopK(), select::Gate({})}) {
    EXPECT_TRUE(Evicted(selector, {1, 2}, 2).empty()) << selector->name();
    EXPECT_TRUE(Evicted(selector, {}, 0).empty()) << selector->name();
  }
}

// More groups than blocks act as one group per block, at the same cost.
TEST(SelectorsAreTotalTest, AMillionGroupsChooseAsManyAsThereAreBlocks) {
  const std::vector<double> scores = {3, 1, 4, 1, 5};
  const std::vector<int> many(64, 1 << 20);
  EXPECT_EQ(Evicted(select::Rounds({.block = 1, .rounds = many}), scores, 2),
            Evicted(select::Rounds({.block = 1, .rounds = std::vector<int>(64, 5)}), scores, 2));
}

TEST(SmoothTest, AMaximumPassesOverNaN) {
  std::vector<double> copy;
  std::vector<double> scores = {kNaN, 2, kNaN, kNaN, kNaN};
  score::Smooth(score::Pool::kMax, 3, copy, scores);
  EXPECT_EQ(scores[0], 2);
  EXPECT_EQ(scores[1], 2);
  EXPECT_EQ(scores[2], 2);
  EXPECT_TRUE(std::isnan(scores[3]));
}

// Every method, alone and as the decode method of a pair, with attention, keys and values that are
// NaN or infinite: it holds its budget and gives the same result twice.
class AnyNumbersTest : public ::testing::TestWithParam<std::string> {};

double Odd(const testing::Cell& cell) {
  const double odd[] = {kNaN, kInfinity, 0, 1e30, 0.25, 1e-300, 0.25, 3e38};
  return odd[(cell.position * 7 + cell.query * 3 + cell.q_head + cell.layer) % std::ssize(odd)];
}

std::vector<float> OddVector(int, int kv_head, Position position) {
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       3e38f,
                       1e-40f,
                       0,
                       -1,
                       1,
                       2};
  std::vector<float> vector;
  for (int64_t i = 0; i < 4; ++i) {
    vector.push_back(odd[static_cast<size_t>(position * 3 + i * kv_head + i) % std::size(odd)]);
  }
  return vector;
}

TEST_P(AnyNumbersTest, AreDecidedOn) {
  for (const bool all_nan : {false, true}) {
#ifdef WINNOW_SANITIZES_MEMORY  // whether two runs agree is tested without sanitizers
    constexpr size_t kRuns = 1;
#else
    constexpr size_t kRuns = 2;
#endif
    std::vector<std::vector<Position>> kept[kRuns];
    for (auto& of_run : kept) {
      const auto method = MakeMethod(GetParam());
      ASSERT_TRUE(method) << method.error().message;
      const int64_t budget = std::max<int64_t>(72, (*method)->traits().budget.min);
      testing::Harness harness(
          *method, {.n_layers = 3, .n_q_heads = 4, .n_kv_heads = 2, .dim = 4, .budget = budget});
      harness.SetKeys(OddVector);
      harness.SetValues(OddVector);
      const auto weights = [&](const testing::Cell& cell) { return all_nan ? kNaN : Odd(cell); };
      harness.Prefill(100, weights);
      harness.Prefill(30, weights);
      for (int i = 0; i < 20; ++i) harness.Decode(weights);
      for (int layer = 0; layer < 3; ++layer) {
        for (int head = 0; head < 2; ++head) of_run.push_back(harness.Kept(layer, head));
      }
    }
    EXPECT_EQ(kept[0], kept[kRuns - 1]);
    if ((*MakeMethod(GetParam()))->traits().decisions.evicts_in_decode && !all_nan) {
      for (const auto& positions : kept[0]) EXPECT_LE(positions.size(), 72u * 4);
    }
  }
}

std::string ParamName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = std::to_string(info.index) + "_";
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

// Every choice of a parameter; of a number the ends of its range, if `ends`.
std::vector<std::string> Values(const Parameter& parameter, bool ends) {
  if (parameter.type == "switch") return {"true", "false"};
  if (parameter.type == "choice" || parameter.type == "part") return parameter.choices;
  if (parameter.type == "count or share") return {"0", "0.9"};
  if (!ends || (parameter.type != "integer" && parameter.type != "number")) return {};
  return {ShortestText(parameter.range.min), ShortestText(parameter.range.max)};
}

// All methods and their variants; with each further parameter at other values, as far as the method
// takes them and a prompt of 100 tokens is long enough.
std::vector<std::string> EverySpec() {
  const std::vector<std::string> bases = testing::MethodsAndVariants();
  const auto n_methods = std::ssize(testing::MethodNames());  // they come first
  std::vector<std::string> specs = bases;
  for (const std::string& base : bases) {
    const bool ends = &base - bases.data() < n_methods;
    const std::string_view name = std::string_view(base).substr(0, base.find(':'));
    const MethodEntry& entry = *std::ranges::find(Methods(), name, &MethodEntry::name);
    const std::string begin = base + (base == name ? ":" : ",");
    for (const Parameter& parameter : entry.parameters()) {
      if (begin.find(parameter.name + "=") != std::string::npos) continue;
      for (const std::string& value : Values(parameter, ends)) {
        if (value == parameter.default_value) continue;
        const std::string spec = begin + parameter.name + "=" + value;
        const auto method = MakeMethod(spec);
        if (method && (*method)->traits().budget.min <= 72) specs.push_back(spec);
      }
    }
  }
  return specs;
}

// Parameters at other values all at once, drawn; several per method, as far as it takes them.
std::vector<std::string> DrawnSpecs() {
  std::vector<std::string> specs;
  Rng rng(7);
  for (const MethodEntry& entry : Methods()) {
    for (int i = 0; i < 12; ++i) {
      std::string spec;
      for (const Parameter& parameter : entry.parameters()) {
        const std::vector<std::string> values = Values(parameter, true);
        const size_t which = rng.Next() % (values.size() + 1);
        if (which == values.size()) continue;  // the default
        spec += (spec.empty() ? ":" : ",") + parameter.name + "=" + values[which];
      }
      spec = std::string(entry.name) + spec;
      const auto method = MakeMethod(spec);
      if (method && (*method)->traits().budget.min <= 72) specs.push_back(spec);
    }
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Drawn, AnyNumbersTest, ::testing::ValuesIn(DrawnSpecs()), ParamName);

TEST(AnyNumbersTest, AreTriedWithManySpecs) {
  EXPECT_GT(EverySpec().size(), 500u);
  EXPECT_GT(DrawnSpecs().size(), 80u);
}

INSTANTIATE_TEST_SUITE_P(Methods, AnyNumbersTest, ::testing::ValuesIn(EverySpec()), ParamName);

// The prefill method of a pair may leave heads of different lengths to the decode method.
TEST(AnyNumbersTest, UnequalHeadsAreDecodedByAnyMethod) {
  int n_pairs = 0;
  for (const std::string& decode : EverySpec()) {
    const auto first = MakeMethod("adakv:window=4");
    const auto second = MakeMethod(decode);
    ASSERT_TRUE(first && second);
    const auto both = WithDecode(*first, *second);
    if (!both) continue;  // does not evict in decode, or needs other storage or another reduction
    ++n_pairs;
    testing::Harness harness(
        *both, {.n_layers = 3, .n_q_heads = 4, .n_kv_heads = 2, .dim = 4, .budget = 24});
    // All attention goes to one head's entries.
    harness.Prefill(100, [](const testing::Cell& cell) {
      return cell.q_head < 2 ? 0.9 - 0.001 * static_cast<double>(cell.position) : 0.001;
    });
    ASSERT_NE(harness.Kept(0, 0).size(), harness.Kept(0, 1).size());
    const int64_t before[] = {harness.cache().n_rows(0, 0), harness.cache().n_rows(0, 1)};
    for (int i = 0; i < 40; ++i) harness.Decode(testing::RandomWeights(3));
    const bool held = (*second)->traits().budget.held;
    for (int head = 0; head < 2; ++head) {
      EXPECT_LE(harness.cache().n_rows(0, head),
                std::max<int64_t>(before[head], (held ? 2 : 4) * 24))
          << decode << " head " << head;
    }
  }
  EXPECT_GE(n_pairs, 20);
}

TEST(RangesTest, ParametersThatMakeNoSenseAreRefusedWithTheRange) {
  const auto error = [](std::string_view spec) {
    const auto method = MakeMethod(spec);
    return method ? std::string() : method.error().message;
  };
  EXPECT_NE(error("cake:tau1=0.001").find("tau1: found '0.001', expected a number from 0.1 to 100"),
            std::string::npos)
      << error("cake:tau1=0.001");
  for (const char* name : {"cake", "snapkv", "ems"}) {
    const std::string even = error(std::string(name) + ":kernel=4");
    EXPECT_NE(even.find("an odd integer from 1 to 1023"), std::string::npos) << even;
    const std::string huge = error(std::string(name) + ":kernel=1048575");
    EXPECT_NE(huge.find("from 1 to 1023"), std::string::npos) << huge;
  }
  std::string rounds = "hbw:rounds=1";
  for (int i = 0; i < 64; ++i) rounds += "/1";
  EXPECT_NE(error(rounds).find("64"), std::string::npos) << error(rounds);
}

}  // namespace
}  // namespace winnow::compression
