#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::ByPosition;
using testing::Harness;
using Positions = std::vector<Position>;

Result<MethodPtr> Both(std::string_view prefill, std::string_view decode) {
  WINNOW_ASSIGN(const MethodPtr first, MakeMethod(prefill));
  WINNOW_ASSIGN(const MethodPtr second, MakeMethod(decode));
  return WithDecode(first, second);
}

std::string ErrorText(const Result<MethodPtr>& method) {
  return method ? "no error" : method.error().message;
}

TEST(TwoMethodsTest, TheDecodeMethodKnowsThePromptAndHoldsTheBudget) {
  const auto method = Both("snapkv:window=2,kernel=1", "h2o");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.budget = 4});
  harness.Prefill(8, ByPosition({.5, .1, .4, .1, .1, .1, .05, .05}));
  EXPECT_EQ(harness.Kept(), (Positions{0, 2, 6, 7}));
  // H2O would evict token 0 by this row alone; the attention it received in the prompt keeps it.
  harness.Decode({.01, .9, .05, .02, .02});
  EXPECT_EQ(harness.Kept(), (Positions{0, 2, 7, 8}));
  harness.Decode({.2, .2, .2, .2, .2});
  EXPECT_EQ(harness.Kept().size(), 4u);
}

TEST(TwoMethodsTest, APromptWithinTheBudgetGrowsUpToIt) {
  const auto method = Both("snapkv:window=2,kernel=1", "streaming:sinks=1,positions=original");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.budget = 4});
  harness.Prefill(3, ByPosition({.5, .3, .2}));
  EXPECT_EQ(harness.Kept(), (Positions{0, 1, 2}));
  for (int i = 0; i < 3; ++i) harness.Decode(ByPosition(std::vector<double>(16, .1)));
  EXPECT_EQ(harness.Kept(), (Positions{0, 3, 4, 5}));
  // The first method compresses the next prompt too: by votes, not by age.
  harness.Prefill(4, ByPosition({.1, 0, 0, .9, .1, .1, .1, .1, .1, .1}));
  EXPECT_EQ(harness.Kept(), (Positions{3, 7, 8, 9}));
}

TEST(TwoMethodsTest, LayersKeepTheSizesThePrefillGaveThem) {
  const auto method = Both("pyramidkv:window=2", "streaming:sinks=1,positions=original");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.n_layers = 4, .budget = 8});
  harness.Prefill(64, ByPosition(std::vector<double>(128, .1)));
  std::vector<size_t> sizes;
  sizes.reserve(4);
  for (int layer = 0; layer < 4; ++layer) sizes.push_back(harness.Kept(layer).size());
  EXPECT_GT(sizes.front(), sizes.back());
  for (int i = 0; i < 3; ++i) harness.Decode(ByPosition(std::vector<double>(128, .1)));
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(harness.Kept(layer).size(), sizes[static_cast<size_t>(layer)]) << layer;
  }
}

int64_t RowsHeld(const Harness& harness, int n_layers) {
  int64_t n = 0;
  for (int layer = 0; layer < n_layers; ++layer) n += harness.cache().n_rows(layer, 0);
  return n;
}

// Layers raised to the decode method's minimum take from the others.
TEST(TwoMethodsTest, RaisingLayersToTheMinimumKeepsTheTotal) {
  const auto method = Both("pyramidkv:window=2", "tova:sinks=9,queries=1");
  ASSERT_TRUE(method) << ErrorText(method);
  const int64_t min = (*method)->traits().budget.min;
  ASSERT_GE(min, 10);
  const int64_t budget = min + 2;
  Harness harness(*method, {.n_layers = 4, .budget = budget});
  harness.Prefill(64, ByPosition(std::vector<double>(128, .1)));
  ASSERT_LT(harness.Kept(3).size(), static_cast<size_t>(min));
  for (int i = 0; i < 30; ++i) harness.Decode(ByPosition(std::vector<double>(128, .1)));
  EXPECT_EQ(harness.Kept(3).size(), static_cast<size_t>(min));
  EXPECT_GT(harness.Kept(0).size(), harness.Kept(3).size());
  EXPECT_LE(RowsHeld(harness, 4), 4 * budget);
  EXPECT_GE(RowsHeld(harness, 4), 4 * (budget - 1));
  const Method::Sizes sizes = (*method)->DecodeSizes(budget, 64, 94, 4);
  EXPECT_EQ(sizes.total_rows, 4 * budget);
  EXPECT_EQ(sizes.total_slots, 4 * budget);
}

// Entries that share rows are counted by rows, and the second method finds their classes although
// it did not create them.
TEST(TwoMethodsTest, EntriesThatShareRowsHoldTheBudgetInRows) {
  for (const char* decode : {"ems:window=4", "ems:window=2", "ems:window=8"}) {
    SCOPED_TRACE(decode);
    const auto method = Both("ems:window=4", decode);
    ASSERT_TRUE(method) << ErrorText(method);
    Harness harness(*method, {.budget = 12});
    harness.SetKeys([](int, int, Position position) {
      return std::vector<float>{1, static_cast<float>(position % 5)};
    });
    harness.SetValues([](int, int, Position position) {
      return std::vector<float>{1, static_cast<float>(position % 5)};
    });
    harness.Prefill(64, testing::RandomWeights(1));
    ASSERT_GT(harness.Kept().size(), 12u);
    EXPECT_LE(RowsHeld(harness, 1), 12);
    for (int i = 0; i < 40; ++i) {
      harness.Decode(testing::RandomWeights(2 + i));
      ASSERT_LE(RowsHeld(harness, 1), 12) << i;
      ASSERT_LE(harness.Kept().size(), 48u) << i;
    }
  }
}

// A method that finds its own size needs no budget, and decode holds that size.
TEST(TwoMethodsTest, ASizeThatWasFoundIsHeld) {
  const auto method = Both("refreekv:sinks=1,whole_layers=0", "h2o");
  ASSERT_TRUE(method) << ErrorText(method);
  EXPECT_FALSE((*method)->traits().budget.needed);
  std::vector<double> weights(32, 0);
  for (size_t i = 27; i < 32; ++i) weights[i] = .2;
  for (const int64_t budget : {0, 20}) {
    Harness harness(*method, {.budget = budget});
    harness.Prefill(32, ByPosition(weights));
    const size_t found = harness.Kept().size();
    EXPECT_LT(found, 20u);
    for (int i = 0; i < 6; ++i) harness.Decode(ByPosition(std::vector<double>(64, .1)));
    EXPECT_EQ(harness.Kept().size(), found);
  }
  // The same for a prompt that is kept whole, under any limit.
  for (const int64_t budget : {0, 10, 40}) {
    Harness harness(*method, {.budget = budget});
    harness.Prefill(6, ByPosition(std::vector<double>(64, .1)));
    ASSERT_EQ(harness.Kept().size(), 6u);
    for (int i = 0; i < 9; ++i) harness.Decode(ByPosition(std::vector<double>(64, .1)));
    EXPECT_EQ(harness.Kept().size(), 6u);
  }
}

// A decode method only observes while a prompt is read: a threshold taken from evictions that were
// not carried out would decide what it merges later.
TEST(TwoMethodsTest, ThePromptOfAnotherMethodSetsNoThreshold) {
  const auto method = Both("snapkv:window=2,kernel=1", "d2o:total=true");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.n_layers = 4, .budget = 16});
  const testing::Weights weights = [](const testing::Cell& cell) {  // the last layer is sparse
    return cell.layer == 3 && cell.position == 0 ? 30 : .1;
  };
  for (int chunk = 0; chunk < 3; ++chunk) harness.Prefill(16, weights);
  for (int layer = 0; layer < 4; ++layer) {
    for (const double number : harness.cache().head_numbers(layer, 0)) EXPECT_EQ(number, 0);
  }
  harness.Decode(weights);
}

// The sizes that the memory plan uses.
TEST(TwoMethodsTest, SizesAreThePrefillMethodsThenTheDecodeMethods) {
  const MethodPtr whole = Both("full", "h2o").value();
  EXPECT_EQ(whole->TotalSlots(16, 100, 4), 400);
  EXPECT_EQ(whole->DecodeSizes(16, 100, 101, 4).total_slots, 64);
  EXPECT_EQ(whole->DecodeSizes(16, 5, 9, 4).total_slots, 36);
  EXPECT_TRUE(whole->traits().budget.needed);
  const MethodPtr pyramid = Both("pyramidkv:window=4", "h2o").value();
  const Method::Sizes sizes = pyramid->DecodeSizes(20, 200, 300, 4);
  EXPECT_EQ(sizes.layer_slots, pyramid->LayerSlots(0, 4, 20, 200));
  EXPECT_GT(sizes.layer_slots, 20);
  EXPECT_EQ(sizes.total_slots, 80);
}

TEST(TwoMethodsTest, IsTheUnionOfBoth) {
  const auto method = Both("snapkv:window=8", "h2o:sinks=3");
  ASSERT_TRUE(method) << ErrorText(method);
  const Traits& traits = (*method)->traits();
  EXPECT_EQ(traits.spec, "snapkv:window=8, then h2o:sinks=3");
  EXPECT_TRUE(traits.budget.needed);
  EXPECT_TRUE(traits.decisions.evicts_in_decode);
  EXPECT_EQ(traits.budget.min, (*MakeMethod("h2o:sinks=3"))->traits().budget.min);
  const Needs needs = (*method)->needs();
  EXPECT_EQ(needs.prefill.last_rows, 8);
  EXPECT_TRUE(needs.prefill.column_sums);
  EXPECT_EQ(needs.decode, (*MakeMethod("h2o"))->needs().decode);
  EXPECT_EQ(needs.state.n_columns, 1);
}

TEST(TwoMethodsTest, ReadersThatReduceDifferentlyAreServedTogether) {
  const auto method = Both("snapkv:window=1,kernel=1,reduce=max", "h2o:recent=1");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.n_q_heads = 2, .n_kv_heads = 1, .budget = 2});
  // The maximum over the heads prefers token 1, the mean token 0.
  harness.Prefill(3, [](const testing::Cell& cell) {
    if (cell.position == 0) return .5;
    if (cell.position == 1) return cell.q_head == 0 ? .8 : 0.;
    return .1;
  });
  EXPECT_EQ(harness.Kept(), (Positions{1, 2}));
  // H2O's column: the mean over the heads of the sum over queries 1 and 2.
  const std::vector<double> sums = harness.Column(0);
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_NEAR(sums[0], .8, 1e-6);
}

TEST(TwoMethodsTest, RefusesWhatCannotWorkTogether) {
  EXPECT_EQ(ErrorText(Both("snapkv", "full")),
            "snapkv, then full: full does not evict while generating");
  EXPECT_EQ(ErrorText(Both("snapkv", "pyramidinfer")),
            "snapkv, then pyramidinfer: pyramidinfer finds its own size and ignores the budget in "
            "decode; expected a method with a budget (winnow methods)");
  EXPECT_EQ(ErrorText(Both("snapkv", "streaming")),
            "snapkv, then streaming: the first keeps positions original, the second reassigned; "
            "they must agree (some methods have a parameter 'positions')");
}

// Entries held beside the budget while generating are part of the promised sizes, layer by layer.
TEST(TwoMethodsTest, PromisesTheNewestEntriesBesideTheBudget) {
  const auto method = Both("pyramidkv:window=2", "winnow:generated=leave,rest=0,recent=8");
  ASSERT_TRUE(method) << ErrorText(method);
  constexpr int kLayers = 3;
  Harness harness(*method, {.n_layers = kLayers, .budget = 6});
  harness.Prefill(64, testing::RandomWeights(1));
  int64_t most = 0;
  for (uint64_t step = 0; step < 60; ++step) {
    harness.Decode(testing::RandomWeights(step));
    const Method::Sizes sizes = (*method)->DecodeSizes(6, 64, harness.n_seen(), kLayers);
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_LE(harness.cache().n_slots(layer, 0), sizes.layer_slots) << step;
    }
    EXPECT_LE(RowsHeld(harness, kLayers), sizes.total_slots) << step;
    EXPECT_LE(RowsHeld(harness, kLayers), sizes.total_rows) << step;
    most = std::max(most, RowsHeld(harness, kLayers));
  }
  EXPECT_GT(most, kLayers * (6 + 8));
}

// A prompt that the first method leaves whole is evicted down to the budget in decode, and held
// there.
TEST(TwoMethodsTest, AWholePromptIsBroughtToTheBudget) {
  const auto method = Both("full", "winnow:generated=leave,rest=0,recent=8");
  ASSERT_TRUE(method) << ErrorText(method);
  Harness harness(*method, {.n_layers = 2, .budget = 12});
  harness.Prefill(64, testing::RandomWeights(1));
  for (uint64_t step = 0; step < 40; ++step) {
    harness.Decode(testing::RandomWeights(step));
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_LT(harness.cache().n_slots(layer, 0), 12 + 2 * 8) << step;
    }
  }
}

// Only the prefill method's biases have a column in the cache.
TEST(TwoMethodsTest, BiasesBelongToThePromptsMethod) {
  EXPECT_TRUE(Both("winnow", "winnow:generated=leave,rest=0"));
  const auto refused = Both("snapkv", "winnow:generated=leave");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "snapkv, then winnow:generated=leave: the second sets biases, which only the prefill "
            "method may; disable them with its parameters (winnow methods NAME)");
}

}  // namespace
}  // namespace winnow::compression
