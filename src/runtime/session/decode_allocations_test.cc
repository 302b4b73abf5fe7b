// A decode step allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/allocations.h"
#include "compression/registry.h"
#include "runtime/session/batch.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

class DecodeAllocations : public ::testing::TestWithParam<gguf::TensorType> {};

TEST_P(DecodeAllocations, AreNone) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: AddressSanitizer has its own operator new";
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.type = GetParam();
  const auto engine = testing::TinyEngine(spec, {.n_threads = 3});
  const auto session = Session::Make(*engine, {}).value();
  ASSERT_TRUE(session->Prefill(std::vector<TokenId>{1, 5, 6}).value());
  ASSERT_TRUE(session->Decode(7).has_value());

  const int64_t before = winnow::testing::CountAllocations();
  bool all_good = true;
  for (TokenId token = 8; token < 60; ++token) {
    all_good = all_good && session->Decode(token).has_value();
  }
  const int64_t after = winnow::testing::CountAllocations();
  EXPECT_TRUE(all_good);
  EXPECT_EQ(after - before, 0);
  EXPECT_GT(before, 0);  // the counting works
}

// Steps that observe, evict or merge allocate nothing either, once the first evictions have warmed
// them up.
class CompressedAllocations : public ::testing::TestWithParam<std::string> {};

TEST_P(CompressedAllocations, AreNone) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: AddressSanitizer has its own operator new";
  const auto engine = testing::TinyEngine(model::testing::MakeTinySpec("llama"), {.n_threads = 2});
  SessionOptions options;
  // "PROMPT > STEPS" names a prompt method and a decode method.
  const size_t cut = GetParam().find(" > ");
  compression::MethodPtr method = compression::MakeMethod(GetParam().substr(0, cut)).value();
  if (cut != std::string::npos) {
    method =
        compression::WithDecode(method, compression::MakeMethod(GetParam().substr(cut + 3)).value())
            .value();
  }
  const int64_t size = std::max<int64_t>(20, method->traits().budget.min);
  options.compression.method = method;
  const bool budget_has_effect = method->traits().budget.needed || method->traits().budget.held;
  if (budget_has_effect) options.compression.size = size;  // a limit where no budget is needed
  const auto session = Session::Make(*engine, options).value();
  const auto n_prompt = static_cast<int>(size) + 10;
  ASSERT_TRUE(session->Prefill(testing::Tokens(n_prompt)).value());
  for (TokenId token = 3; token < 23; ++token) ASSERT_TRUE(session->Decode(token).has_value());

  const int64_t before = winnow::testing::CountAllocations();
  bool all_good = true;
  for (TokenId token = 30; token < 50; ++token) {
    all_good = all_good && session->Decode(token).has_value();
  }
  EXPECT_TRUE(all_good);
  EXPECT_EQ(winnow::testing::CountAllocations() - before, 0);
}

// Several sequences at once. With one thread only: otherwise chance decides which thread takes a
// sequence first, and each thread has its own buffers.
TEST(BatchAllocations, AreNone) {
  if (!winnow::testing::kCountsAllocations)
    GTEST_SKIP() << "skipped: AddressSanitizer has its own operator new";
  const auto engine = testing::TinyEngine(model::testing::MakeTinySpec("llama"), {.n_threads = 1});
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> all;
  for (const char* spec : {"", "h2o", "streaming", ""}) {
    SessionOptions options;
    if (*spec != 0) {
      options.compression.method = compression::MakeMethod(spec).value();
      options.compression.size = 20;
    }
    sessions.push_back(Session::Make(*engine, options).value());
    all.push_back(sessions.back().get());
    ASSERT_TRUE(all.back()->Prefill(std::vector<TokenId>(30, 7)).value());
  }
  Batch batch(*engine);
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  for (int step = 0; step < 20; ++step) ASSERT_TRUE(batch.Decode(all, tokens).has_value());

  const int64_t before = winnow::testing::CountAllocations();
  bool all_good = true;
  for (int step = 0; step < 20; ++step) {
    all_good = all_good && batch.Decode(all, tokens).has_value();
  }
  EXPECT_TRUE(all_good);
  EXPECT_EQ(winnow::testing::CountAllocations() - before, 0);
}

// All registered methods, and `specs`.
std::vector<std::string> Specs(std::vector<std::string> specs) {
  for (const compression::MethodEntry& entry : compression::Methods()) {
    specs.emplace_back(entry.name);
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(
    Methods, CompressedAllocations,
    ::testing::ValuesIn(
        Specs({"pyramidinfer:min_context=4,recent=0.1,block=4", "d2o:similarity=both",
               "ems:positions=original", "custom:score=heavy,budget=competing,recent=4,when=step",
               "custom:score=last,budget=norm,when=step",
               "custom:score=running_mean,budget=burst,select=gate,when=step",
               "custom:score=heavy,select=rounds(block=2),recent=4,when=step",
               "custom:score=heavy,merge=spread,recent=4,when=step",
               "custom:score=heavy,budget=competing,merge=spread,recent=4,when=step",
               "custom:score=heavy,budget=competing(form=blend,by_mass=true),recent=4,"
               "select=representatives,merge=next,when=step",
               "snapkv > h2o", "pyramidkv > tova", "refreekv > d2o"})),
    [](const auto& param_info) {
      std::string name = param_info.param;
      std::replace_if(
          name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
      return name;
    });

INSTANTIATE_TEST_SUITE_P(Types, DecodeAllocations,
                         ::testing::Values(gguf::TensorType::kF32, gguf::TensorType::kF16,
                                           gguf::TensorType::kQ8_0),
                         [](const auto& param_info) {
                           return std::string(gguf::GetTypeInfo(param_info.param).name);
                         });

}  // namespace
}  // namespace winnow::runtime
