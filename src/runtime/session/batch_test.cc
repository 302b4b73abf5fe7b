#include "runtime/session/batch.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/engine.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime {
namespace {

using testing::Logits;
using testing::Tokens;

class BatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
    spec.type = gguf::TensorType::kQ8_0;  // products of few rows are computed like those of one
    engine_ = testing::TinyEngine(spec, {.n_threads = 2});
  }

  std::unique_ptr<Session> Make(const std::string& spec = "", int64_t size = 0,
                                int64_t context = 0) {
    SessionOptions options = {.context = context};
    if (!spec.empty()) options.compression.method = compression::MakeMethod(spec).value();
    options.compression.size = size;
    return Session::Make(*engine_, options).value();
  }

  std::unique_ptr<Engine> engine_;
};

TEST_F(BatchTest, SequencesComeAndGo) {
  const auto a = Make(), b = Make(), alone = Make();
  ASSERT_TRUE(a->Prefill(Tokens(5)).value());
  ASSERT_TRUE(alone->Prefill(Tokens(5)).value());
  Batch batch(*engine_);
  // A session without a prompt takes its first token like any other.
  const std::vector<std::vector<Session*>> steps = {{a.get()}, {a.get(), b.get()}, {b.get()}, {}};
  for (const auto& sessions : steps) {
    ASSERT_TRUE(batch.Decode(sessions, std::vector<TokenId>(sessions.size(), 7)).has_value());
  }
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(alone->Decode(7).has_value());
  EXPECT_EQ(Logits(*a), Logits(*alone));
  EXPECT_EQ(a->n_tokens(), 7);
  EXPECT_EQ(b->n_tokens(), 2);
  // Tokens that were generated in a batch are an ordinary prefix.
  std::vector<TokenId> tokens(a->tokens().begin(), a->tokens().end());
  tokens.push_back(7);
  EXPECT_EQ(a->KeepCommonPrefix(tokens), 7);
}

TEST_F(BatchTest, OneThatFailsLeavesTheOthersTheirTokens) {
  const auto full = Make("", 0, 6), plain = Make(), alone = Make();
  for (Session* session : {full.get(), plain.get(), alone.get()}) {
    ASSERT_TRUE(session->Prefill(Tokens(6)).value());
  }
  const std::vector<Session*> sessions = {full.get(), plain.get()};
  std::vector<Result<void>> outcomes(2);
  Batch batch(*engine_);
  batch.DecodeEach(sessions, std::vector<TokenId>{7, 7}, outcomes);
  ASSERT_FALSE(outcomes[0].has_value());
  EXPECT_EQ(outcomes[0].error().message,
            "session: 1 token more does not fit the context of 6 tokens: it is full");
  EXPECT_EQ(full->n_tokens(), 6);
  ASSERT_TRUE(outcomes[1].has_value());
  ASSERT_TRUE(alone->Decode(7).has_value());
  EXPECT_EQ(Logits(*plain), Logits(*alone));
}

TEST_F(BatchTest, AnExceptionLeavesAllAsTheyWere) {
  bool throws = false;
  SessionOptions options;
  options.on_projections = [&throws](const attention::Projections& projections) {
    if (throws && projections.layer == 1) throw std::bad_alloc();
  };
  const auto throwing = Session::Make(*engine_, options).value();
  const auto plain = Make(), alone = Make();
  for (Session* session : {throwing.get(), plain.get(), alone.get()}) {
    ASSERT_TRUE(session->Prefill(Tokens(6)).value());
  }
  const std::vector<Session*> sessions = {plain.get(), throwing.get()};
  const std::vector<TokenId> tokens = {7, 7};
  std::vector<Result<void>> outcomes(2);
  Batch batch(*engine_);
  throws = true;
  EXPECT_THROW(batch.DecodeEach(sessions, tokens, outcomes), std::bad_alloc);
  EXPECT_THROW((void)batch.Decode(sessions, tokens), std::bad_alloc);
  throws = false;
  ASSERT_TRUE(batch.Decode(sessions, tokens).has_value());
  ASSERT_TRUE(alone->Decode(7).has_value());
  for (const Session* session : sessions) {
    EXPECT_EQ(session->n_tokens(), 7);
    EXPECT_EQ(Logits(*session), Logits(*alone));
  }
}

TEST_F(BatchTest, OneThatRefusesLeavesAllAsTheyWere) {
  const auto compressed = Make("streaming:sinks=2", 8), plain = Make("", 0, 6);
  ASSERT_TRUE(compressed->Prefill(Tokens(20)).value());
  ASSERT_TRUE(plain->Prefill(Tokens(6)).value());
  const std::vector<float> before = Logits(*compressed);
  Batch batch(*engine_);
  std::vector<Session*> sessions = {compressed.get(), plain.get()};
  auto refused = batch.Decode(sessions, std::vector<TokenId>{1, 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(
      refused.error().message,
      "sequence 1 of 2: session: 1 token more does not fit the context of 6 tokens: it is full");
  plain->Truncate(5);
  refused = batch.Decode(sessions, std::vector<TokenId>{1, testing::kVocabulary});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "sequence 1 of 2: session: token 70 is outside the vocabulary of 70");
  EXPECT_EQ(Logits(*compressed), before);
  EXPECT_EQ(compressed->n_tokens(), 20);
  EXPECT_EQ(plain->n_tokens(), 5);
  // The refusals leave no trace.
  const auto alone = Make("streaming:sinks=2", 8);
  ASSERT_TRUE(alone->Prefill(Tokens(20)).value());
  ASSERT_TRUE(alone->Decode(3).has_value());
  ASSERT_TRUE(batch.Decode(sessions, std::vector<TokenId>{3, 4}).has_value());
  EXPECT_EQ(Logits(*compressed), Logits(*alone));
}

TEST_F(BatchTest, AMemoryLimitIsEachSequencesOwn) {
  SessionOptions options;
  const int64_t entry = 3 * 2 * 2 * (16 + 16);  // layers, heads, bytes of F16
  options.compression.memory_bytes = 10 * entry;
  const auto limited = Session::Make(*engine_, options).value();
  const auto free = Make();
  ASSERT_TRUE(limited->Prefill(Tokens(10)).value());
  ASSERT_TRUE(free->Prefill(Tokens(10)).value());
  Batch batch(*engine_);
  std::vector<Session*> sessions = {free.get(), limited.get()};
  const auto refused = batch.Decode(sessions, std::vector<TokenId>{1, 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("sequence 1 of 2"), std::string::npos);
  EXPECT_NE(refused.error().message.find(std::to_string(11 * entry) + " bytes"), std::string::npos);
  EXPECT_TRUE(batch.Decode(std::span(sessions).first(1), std::vector<TokenId>{1}).has_value());
}

TEST_F(BatchTest, MemoryIsModelBuffersAndCaches) {
  const BatchShape shape = {.n_prompt = 50, .n_generate = 30};
  const int64_t entry = 3 * 2 * 2 * (16 + 16);
  const BatchMemory full = PlanBatchMemory(*engine_, {}, shape, 4).value();
  EXPECT_EQ(full.model_bytes, ModelBytes(*engine_));
  EXPECT_EQ(full.cache_bytes, 4 * 80 * entry);
  // Prompts of a compressed batch need one layer in full, besides the others at their compressed
  // size.
  SessionOptions options;
  options.compression.method = compression::MakeMethod("snapkv:window=8").value();
  options.compression.size = 16;
  const BatchMemory snapkv = PlanBatchMemory(*engine_, options, shape, 4).value();
  EXPECT_EQ(snapkv.cache_bytes, 4 * (16 + 30) * entry);
  const BatchMemory prompts =
      PlanBatchMemory(*engine_, options, {.n_prompt = 50, .n_generate = 0}, 4).value();
  EXPECT_EQ(prompts.cache_bytes, 3 * 16 * entry + (2 * 16 + 50) * entry / 3);
  EXPECT_EQ(full.buffer_bytes, snapkv.buffer_bytes);
}

// The prompt is not compressed, and the decode method lets it grow to its budget.
TEST_F(BatchTest, MemoryWithADecodeMethodIsWhatItGrowsTo) {
  SessionOptions options;
  options.compression.method = compression::WithDecode(compression::MakeMethod("full").value(),
                                                       compression::MakeMethod("keydiff").value())
                                   .value();
  options.compression.size = 900;
  const int64_t entry = 3 * 2 * 2 * (16 + 16);
  constexpr int64_t kFixed = 3 * 8;  // one number per layer
  const BatchShape shape = {.n_prompt = 37, .n_generate = 60};
  EXPECT_EQ(PlanBatchMemory(*engine_, options, shape, 4).value().cache_bytes,
            4 * (97 * entry + kFixed));
  // With a smaller budget, all prompts stay in full until the first step.
  options.compression.size = 10;
  EXPECT_EQ(PlanBatchMemory(*engine_, options, shape, 4).value().cache_bytes,
            4 * ((3 * 37 + 1) * entry / 3 + kFixed));
}

TEST_F(BatchTest, TheLargestBatchIsTheLastThatFits) {
  const BatchShape shape = {.n_prompt = 50, .n_generate = 30};
  for (const int64_t n : {1, 2, 3, 33, 1000}) {
    const int64_t needed = PlanBatchMemory(*engine_, {}, shape, n).value().total();
    EXPECT_EQ(LargestBatch(*engine_, {}, shape, needed).value(), n);
    EXPECT_EQ(LargestBatch(*engine_, {}, shape, needed + 1).value(), n);
    if (n > 1) {
      EXPECT_EQ(LargestBatch(*engine_, {}, shape, needed - 1).value(), n - 1);
    }
  }
  const int64_t min = PlanBatchMemory(*engine_, {}, shape, 1).value().total();
  const auto refused = LargestBatch(*engine_, {}, shape, min - 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "memory limit: one sequence of 50+30 tokens needs " +
                                         std::to_string(min) + " bytes with the model, " +
                                         std::to_string(min - 1) + " are allowed");
}

}  // namespace
}  // namespace winnow::runtime
