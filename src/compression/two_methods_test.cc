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

std::string ErrorOf(const Result<MethodPtr>& method) {
  return method ? "no error" : method.error().message;
}

TEST(TwoMethodsTest, TheDecodeMethodKnowsThePromptAndHoldsTheBudget) {
  const auto method = Both("snapkv:window=2,kernel=1", "h2o");
  ASSERT_TRUE(method) << ErrorOf(method);
  Harness harness(*method, {.budget = 4});
  harness.Prefill(8, ByPosition({.5, .1, .4, .1, .1, .1, .05, .05}));
  EXPECT_EQ(harness.Kept(), (Positions{0, 2, 6, 7}));
  // H2O would evict token 0 by this row alone; what it received in the prompt keeps it.
  harness.Decode({.01, .9, .05, .02, .02});
  EXPECT_EQ(harness.Kept(), (Positions{0, 2, 7, 8}));
  harness.Decode({.2, .2, .2, .2, .2});
  EXPECT_EQ(harness.Kept().size(), 4u);
}

TEST(TwoMethodsTest, APromptWithinTheBudgetGrowsUpToIt) {
  const auto method = Both("snapkv:window=2,kernel=1", "streaming:sinks=1,positions=original");
  ASSERT_TRUE(method) << ErrorOf(method);
  Harness harness(*method, {.budget = 4});
  harness.Prefill(3, ByPosition({.5, .3, .2}));
  EXPECT_EQ(harness.Kept(), (Positions{0, 1, 2}));
  for (int i = 0; i < 3; ++i) harness.Decode(ByPosition(std::vector<double>(16, .1)));
  EXPECT_EQ(harness.Kept(), (Positions{0, 3, 4, 5}));
  // The next prompt is the first method's again: votes, not age.
  harness.Prefill(4, ByPosition({.1, 0, 0, .9, .1, .1, .1, .1, .1, .1}));
  EXPECT_EQ(harness.Kept(), (Positions{3, 7, 8, 9}));
}

TEST(TwoMethodsTest, LayersKeepTheSizesThePrefillGaveThem) {
  const auto method = Both("pyramidkv:window=2", "streaming:sinks=1,positions=original");
  ASSERT_TRUE(method) << ErrorOf(method);
  Harness harness(*method, {.n_layers = 4, .budget = 8});
  harness.Prefill(64, ByPosition(std::vector<double>(128, .1)));
  std::vector<size_t> sizes;
  for (int layer = 0; layer < 4; ++layer) sizes.push_back(harness.Kept(layer).size());
  EXPECT_GT(sizes.front(), sizes.back());
  for (int i = 0; i < 3; ++i) harness.Decode(ByPosition(std::vector<double>(128, .1)));
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(harness.Kept(layer).size(), sizes[static_cast<size_t>(layer)]) << layer;
  }
}

// What the memory plan counts with.
TEST(TwoMethodsTest, SizesAreThePrefillMethodsThenTheDecodeMethods) {
  const MethodPtr whole = Both("full", "h2o").value();
  EXPECT_EQ(whole->TotalSlots(16, 100, 4), 400);
  EXPECT_EQ(whole->DecodeSizes(16, 100, 101, 4).total_slots, 64);
  EXPECT_EQ(whole->DecodeSizes(16, 5, 9, 4).total_slots, 36);
  EXPECT_TRUE(whole->traits().needs_budget);
  const MethodPtr pyramid = Both("pyramidkv:window=4", "h2o").value();
  const Method::Sizes sizes = pyramid->DecodeSizes(20, 200, 300, 4);
  EXPECT_EQ(sizes.layer_slots, pyramid->LayerSlots(0, 4, 20, 200));
  EXPECT_GT(sizes.layer_slots, 20);
  EXPECT_EQ(sizes.total_slots, 80);
}

TEST(TwoMethodsTest, IsTheUnionOfBoth) {
  const auto method = Both("snapkv:window=8", "h2o:sinks=3");
  ASSERT_TRUE(method) << ErrorOf(method);
  const Traits& traits = (*method)->traits();
  EXPECT_EQ(traits.spec, "snapkv:window=8, then h2o:sinks=3");
  EXPECT_TRUE(traits.needs_budget);
  EXPECT_TRUE(traits.evicts_in_decode);
  EXPECT_EQ(traits.min_budget, (*MakeMethod("h2o:sinks=3"))->traits().min_budget);
  const Needs needs = (*method)->needs();
  EXPECT_EQ(needs.prefill.last_rows, 8);
  EXPECT_TRUE(needs.prefill.column_sums);
  EXPECT_EQ(needs.decode, (*MakeMethod("h2o"))->needs().decode);
  EXPECT_EQ(needs.state.n_columns, 1);
}

TEST(TwoMethodsTest, ReadersThatReduceDifferentlyAreServedTogether) {
  const auto method = Both("snapkv:window=1,kernel=1,reduce=max", "h2o:recent=1");
  ASSERT_TRUE(method) << ErrorOf(method);
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
  EXPECT_EQ(ErrorOf(Both("snapkv", "full")),
            "snapkv, then full: full does not evict while generating");
  EXPECT_EQ(ErrorOf(Both("snapkv", "pyramidinfer")),
            "snapkv, then pyramidinfer: pyramidinfer finds its own size and holds no budget while "
            "generating; expected a method that does, such as h2o");
  EXPECT_EQ(ErrorOf(Both("snapkv", "streaming")),
            "snapkv, then streaming: the first keeps positions original, the second reassigned; "
            "they must agree (some methods have a parameter 'positions')");
}

}  // namespace
}  // namespace winnow::compression
