// Options and results of Session::Generate.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <vector>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class ApiGenerate : public TinyModelTest {
 protected:
  ApiGenerate() : TinyModelTest(2) {}

  Session NewSession() { return model_->NewSession().value(); }
  // A model with another vocabulary.
  Model NewOtherModel() {
    const std::string path = path_ + ".other";
    model::testing::TinySpec spec;
    spec.vocabulary = 80;
    auto builder = model::testing::TinyBuilder(spec);
    model::testing::AddTinyTokenizer(builder, spec.vocabulary);
    builder.Write(path);
    Model other = Model::Open(path, {.threads = 1}).value();
    std::filesystem::remove(path);
    return other;
  }
};

TEST_F(ApiGenerate, CountsAndTimesWhatItComputes) {
  Session session = NewSession();
  const Generation first = session.Generate(prompt_, Greedy(6)).value();
  EXPECT_EQ(first.reused_tokens, 0);
  EXPECT_EQ(first.prefill_tokens, 4);
  EXPECT_EQ(first.decode_tokens, 5);
  EXPECT_GT(first.prefill_ms, 0);
  EXPECT_GE(first.first_token_ms, first.prefill_ms);
  EXPECT_NEAR(first.prefill_tokens_per_second(), 4000 / first.prefill_ms, 1e-6);
  EXPECT_NEAR(first.decode_tokens_per_second(), 5000 / first.decode_ms, 1e-6);

  std::vector<Token> longer = prompt_;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.insert(longer.end(), {7, 8});
  const Generation second = session.Generate(longer, Greedy(1)).value();
  EXPECT_EQ(second.reused_tokens, 9);  // the last token was sampled, but not read
  EXPECT_EQ(second.prefill_tokens, 3);
  EXPECT_EQ(second.decode_tokens, 0);
  EXPECT_EQ(second.decode_tokens_per_second(), 0);

  Scheduler scheduler = model_->NewScheduler().value();
  const Generation scheduled = scheduler.Submit(prompt_, Greedy(6)).value().Wait().value();
  EXPECT_EQ(scheduled.reused_tokens, 0);
  EXPECT_EQ(scheduled.prefill_tokens, 4);
  EXPECT_EQ(scheduled.decode_tokens, 5);
  EXPECT_GT(scheduled.first_token_ms, 0);
}

TEST_F(ApiGenerate, SaysOnceThatThePromptIsRead) {
  std::string order;
  GenerateOptions options = Greedy(2);
  Session session = NewSession();
  size_t n_held = 0;
  options.on_prompt = [&] {
    order += "p";
    n_held = session.tokens().size();
  };
  options.on_token = [&](const GeneratedToken&) {
    order += "t";
    return true;
  };
  ASSERT_TRUE(session.Generate(prompt_, options).has_value());
  EXPECT_EQ(order, "ptt");
  EXPECT_EQ(n_held, 4u);
  order.clear();
  Scheduler scheduler = model_->NewScheduler().value();
  ASSERT_TRUE(scheduler.Submit(prompt_, options).value().Wait().has_value());
  EXPECT_EQ(order, "ptt");
}

TEST_F(ApiGenerate, ASamplerGoesOn) {
  Sampling hot = Greedy(0).sampling;
  hot.temperature = 2;
  hot.seed = 7;
  const auto tokens = [&](const GenerateOptions& options) {
    return NewSession().Generate(prompt_, options).value().tokens;
  };
  GenerateOptions anew = Greedy(12);
  anew.sampling = hot;
  const std::vector<Token> first = tokens(anew);
  EXPECT_EQ(tokens(anew), first);

  GenerateOptions going_on = Greedy(12);
  going_on.sampler = model_->NewSampler(hot).value();
  EXPECT_EQ(tokens(going_on), first);
  const std::vector<Token> second = tokens(going_on);
  EXPECT_NE(second, first);
  going_on.sampler = model_->NewSampler(hot).value();  // starts the sequence again
  EXPECT_EQ(tokens(going_on), first);
  EXPECT_EQ(tokens(going_on), second);

  hot.top_p = 2;
  const auto refused = model_->NewSampler(hot);
  EXPECT_NE(refused.error().message.find("top_p"), std::string::npos);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  Scheduler scheduler = model_->NewScheduler().value();
  EXPECT_EQ(scheduler.Submit(prompt_, going_on).error().code, ErrorCode::kInvalid);
  going_on.sampler = NewOtherModel().NewSampler({}).value();
  Session session = NewSession();
  EXPECT_EQ(session.Generate(prompt_, going_on).error().message,
            "Generate: the sampler belongs to another model");
}

TEST_F(ApiGenerate, AConstraintHoldsForEveryAnswer) {
  const auto made = model_->NewGrammarConstraint(R"(root ::= "piece7" ("piece9" | "piece11"))");
  if (!made) {
    EXPECT_NE(made.error().message.find("-DWINNOW_GRAMMAR=ON"), std::string::npos);
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(model_->NewJsonConstraint("{}").error(), made.error());
    return;
  }
  GenerateOptions options = Greedy(10);
  options.constraint = *made;
  Session session = NewSession();
  const Generation first = session.Generate(prompt_, options).value();
  EXPECT_TRUE(first.text == "piece7piece9" || first.text == "piece7piece11") << first.text;
  EXPECT_EQ(first.stop_reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(session.Generate(prompt_, options).value().text, first.text);
  Scheduler scheduler = model_->NewScheduler().value();
  EXPECT_EQ(scheduler.Submit(prompt_, options).value().Wait().value().text, first.text);

  EXPECT_EQ(model_->NewGrammarConstraint("no grammar").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(model_->NewJsonConstraint("no schema").error().code, ErrorCode::kInvalid);
  options.constraint = NewOtherModel().NewGrammarConstraint(R"(root ::= "piece7")").value();
  EXPECT_EQ(session.Generate(prompt_, options).error().message,
            "Generate: the constraint belongs to another model");
  EXPECT_EQ(scheduler.Submit(prompt_, options).error().code, ErrorCode::kInvalid);
}

TEST_F(ApiGenerate, AFlagOfTheProgramCancels) {
  std::atomic<bool> flag = true;
  GenerateOptions options = Greedy(3);
  options.cancel = CancellationToken::From(flag);
  EXPECT_EQ(NewSession().Generate(prompt_, options).value().stop_reason, StopReason::kCancelled);
  flag = false;
  EXPECT_EQ(NewSession().Generate(prompt_, options).value().stop_reason, StopReason::kLimit);
  options.cancel.Cancel();
  EXPECT_TRUE(flag);
}

// An earlier version emptied a session that had to start over before it rejected the prompt.
TEST_F(ApiGenerate, APromptThatIsRefusedChangesNothing) {
  constexpr int64_t kTokenBytes = 3 * 2 * 2 * 16 * 2;  // layers, KV heads, keys and values, f16
  struct Case {
    Compression compression;
    int n_held;
    int n_prompt;
  };
  const Case cases[] = {{{.method = "h2o", .memory_bytes = 24 * kTokenBytes}, 15, 120},
                        {{.method = "h2o", .ratio = 0.1}, 100, 6},
                        {{.method = "streaming", .size = 100}, 110, 200},
                        {{.memory_bytes = 50 * kTokenBytes}, 40, 60}};
  for (const auto& [compression, n_held, n_prompt] : cases) {
    Session session = model_->NewSession({.compression = compression}).value();
    ASSERT_TRUE(session.Append(Document(n_held)).has_value());
    std::vector<Token> prompt = Document(n_prompt);
    prompt[3] = 69;
    const std::vector<double> kept = session.kept();
    const std::vector<float> logits(session.logits().begin(), session.logits().end());
    const auto refused = session.Generate(prompt, Greedy(1));
    ASSERT_FALSE(refused.has_value()) << compression.method;
    EXPECT_EQ(session.tokens().size(), static_cast<size_t>(n_held)) << refused.error().message;
    EXPECT_EQ(session.kept(), kept);
    EXPECT_TRUE(std::ranges::equal(session.logits(), logits));
    // A prompt that fits replaces the session's text.
    prompt = Document(20);
    prompt[3] = 69;
    const auto answered = session.Generate(prompt, Greedy(1));
    ASSERT_TRUE(answered.has_value()) << answered.error().message;
    EXPECT_EQ(session.tokens().size(), 20u);
  }
}

TEST_F(ApiGenerate, SomethingMustBeLeftToChoose) {
  GenerateOptions options = Greedy(3);
  for (Token token = 0; token < 70; ++token) {
    options.sampling.logit_bias.emplace_back(token, -std::numeric_limits<float>::infinity());
  }
  const auto alone = NewSession().Generate(prompt_, options);
  ASSERT_FALSE(alone.has_value());
  EXPECT_EQ(alone.error().code, ErrorCode::kInvalid);
  Scheduler scheduler = model_->NewScheduler().value();
  EXPECT_EQ(scheduler.Submit(prompt_, options).value().Wait().error(), alone.error());
}

TEST(ApiStopReason, HasAName) {
  EXPECT_EQ(ToString(StopReason::kEndOfGeneration), "eos");
  EXPECT_EQ(ToString(StopReason::kLimit), "limit");
  EXPECT_EQ(ToString(StopReason::kStopString), "stop_string");
  EXPECT_EQ(ToString(StopReason::kContext), "context");
  EXPECT_EQ(ToString(StopReason::kCancelled), "cancelled");
}

}  // namespace
}  // namespace winnow
