#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::HarnessConfig;
using testing::Make;

constexpr HarnessConfig kShape = {
    .n_layers = 3, .n_q_heads = 4, .n_kv_heads = 2, .dim = 4, .budget = 24};

// Both methods make the same plans for a prompt and 30 decode steps.
void ExpectSame(const MethodPtr& custom, const MethodPtr& method) {
  EXPECT_EQ(custom->traits().storage.positions, method->traits().storage.positions);
  EXPECT_EQ(custom->traits().decisions.evicts_in_decode,
            method->traits().decisions.evicts_in_decode);
  EXPECT_EQ(custom->traits().budget.needed, method->traits().budget.needed);
  for (const int64_t n : {10, 40, 70}) {
    EXPECT_EQ(custom->TotalSlots(24, n, 3), method->TotalSlots(24, n, 3));
  }
  Harness a(custom, kShape);
  Harness b(method, kShape);
  a.Prefill(70, testing::RandomWeights(3));
  b.Prefill(70, testing::RandomWeights(3));
  for (uint64_t i = 0; i < 30; ++i) {
    ASSERT_EQ(a.plans(), b.plans()) << "call " << i;
    a.Decode(testing::RandomWeights(100 + i));
    b.Decode(testing::RandomWeights(100 + i));
  }
}

TEST(CustomTest, MakesTheMethodsOfTheList) {
  ExpectSame(Make(methods::Custom(), "score=window(8)"), Make(methods::SnapKv(), "window=8"));
  ExpectSame(Make(methods::Custom(), "score=window(8),budget=pyramid(20)"),
             Make(methods::PyramidKv()));
  ExpectSame(Make(methods::Custom(), "score=window(8),budget=competing(0.3)"),
             Make(methods::AdaKv(), "window=8,alpha=0.3"));
  ExpectSame(Make(methods::Custom(), "score=window(8),select=rounds(rounds=1/4)"),
             Make(methods::Hbw(), "window=8,rounds=1/4"));
  ExpectSame(Make(methods::Custom(), "score=window(8),select=blocks(4)"),
             Make(methods::Hbw(), "window=8,block=4,rounds=1"));
  ExpectSame(Make(methods::Custom(), "score=heavy,merge=ema(0.7),recent=4,when=step"),
             Make(methods::Custom(), "score=heavy,merge=nearest(beta=0.7),recent=4,when=step"));
  ExpectSame(Make(methods::Custom(), "score=age,budget=norm(0.3),sinks=4"),
             Make(methods::ReFreeKv(), "threshold=0.3"));
  ExpectSame(Make(methods::Custom(), "score=heavy,when=step,recent=12"),
             Make(methods::H2o(), "recent=12"));
  ExpectSame(Make(methods::Custom(),
                  "score=running_mean,select=pair,when=step,sinks=4,recent=8,positions=reassigned"),
             Make(methods::TreeKv(), "prefill=step,recent=8"));
  ExpectSame(Make(methods::Custom(), "score=key_norm,when=step"), Make(methods::KNorm()));
}

// Parts that read attention in different ways each get the taps that they asked for.
TEST(CustomTest, PartsOfDifferentMethodsWorkTogether) {
  for (const char* parameters :
       {"score=window(8),budget=norm(0.2),sinks=2", "score=window(8,reduce=max),budget=norm(0.2)",
        "score=key_difference,select=tree_blocks(4)", "score=heavy,select=rounds(block=2),recent=4",
        "score=running_mean,budget=competing,select=pair,when=step",
        "score=last(per_layer=false),when=step", "score=window(8),merge=spread",
        "score=window(8),budget=pyramid(20),select=blocks(4),merge=ema(0.7)"}) {
    Harness h(Make(methods::Custom(), parameters), kShape);
    h.Prefill(70, testing::RandomWeights(1));
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      EXPECT_LT(h.Kept(2, kv_head).size(), 70u) << parameters;
      EXPECT_GE(h.Kept(2, kv_head).size(), 8u) << parameters;
    }
    for (uint64_t i = 0; i < 20; ++i) h.Decode(testing::RandomWeights(i));
  }
}

std::string ErrorText(const std::string& parameters) {
  const Result<Spec> spec = ParseSpec("custom:" + parameters);
  if (!spec) return spec.error().message;
  const Result<MethodPtr> made = methods::Custom().make(*spec);
  return made ? "" : made.error().message;
}

TEST(CustomTest, ErrorsListTheChoices) {
  EXPECT_EQ(ErrorText("budget=piramid"),
            "custom: budget: found 'piramid', expected one of burst, competing, norm, pyramid, "
            "uniform");
  EXPECT_EQ(ErrorText("score=window(0)"),
            "custom: score: window: window: found '0', expected an integer from 1 to 1048576");
  EXPECT_EQ(ErrorText("select=topk(3)"),
            "custom: select: topk: no parameter '3'; it has no parameters");
  EXPECT_EQ(ErrorText("score=window(kernel=4)"),
            "custom: score: window: kernel: found '4', expected an odd integer from 1 to 1023");
  EXPECT_NE(ErrorText("scor=window").find("its parameters: score, budget, select"),
            std::string::npos);
  EXPECT_NE(ErrorText("score=window,when=step").find("last tokens of a prompt"), std::string::npos);
  EXPECT_NE(ErrorText("score=age,merge=nearest,positions=reassigned").find("single position"),
            std::string::npos);
  EXPECT_NE(ErrorText("score=heavy(max),budget=norm").find("'reduce'"), std::string::npos);
}

}  // namespace
}  // namespace winnow::compression
