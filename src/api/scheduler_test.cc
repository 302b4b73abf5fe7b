#include <gtest/gtest.h>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

class ApiScheduler : public TinyModelTest {
 protected:
  ApiScheduler() : TinyModelTest(1) {}
};

TEST_F(ApiScheduler, AnswersAsASessionDoes) {
  const auto expected = model_->NewSession().value().Generate(prompt_, Greedy(9)).value();
  Scheduler scheduler = model_->NewScheduler().value();
  std::string streamed;
  GenerateOptions options = Greedy(9);
  options.on_text = [&](std::string_view text) {
    streamed += text;
    return true;
  };
  auto first = scheduler.Submit(prompt_, options).value();
  auto second =
      scheduler.Submit(prompt_, Greedy(9), {.compression = {.method = "h2o", .size = 16}});
  const auto answer = first.Wait().value();
  EXPECT_EQ(answer.tokens, expected.tokens);
  EXPECT_EQ(answer.text, expected.text);
  EXPECT_EQ(streamed, expected.text);
  EXPECT_EQ(answer.stop_reason, StopReason::kLimit);
  EXPECT_EQ(answer.prompt_tokens, 4);
  EXPECT_EQ(second.value().Wait().value().tokens.size(), 9u);
  EXPECT_TRUE(first.done());
}

TEST_F(ApiScheduler, OfADeterministicModelGivesTheSameInAnyCompany) {
  const Model model = Model::Open(path_, {.threads = 2, .deterministic = true}).value();
  const auto prompt = [](int n) {
    return std::vector<Token>(static_cast<size_t>(3 + 5 * n), 5 + n);
  };
  Scheduler scheduler = model.NewScheduler().value();
  std::vector<Pending> together;
  together.reserve(6);
  for (int n = 0; n < 6; ++n) together.push_back(scheduler.Submit(prompt(n), Greedy(20)).value());
  for (int n = 0; n < 6; ++n) {
    const auto alone = scheduler.Submit(prompt(n), Greedy(20)).value().Wait().value();
    EXPECT_EQ(together[static_cast<size_t>(n)].Wait().value().tokens, alone.tokens) << n;
  }
  // A single token's products are summed as those of many.
  Session session = model.NewSession().value(), plain = model_->NewSession().value();
  ASSERT_TRUE(session.Append({{5}}).has_value() && plain.Append({{5}}).has_value());
  bool differs = false;
  for (size_t i = 0; i < plain.logits().size(); ++i) {
    EXPECT_NEAR(session.logits()[i], plain.logits()[i], 1e-4);
    differs = differs || session.logits()[i] != plain.logits()[i];
  }
  EXPECT_TRUE(differs);
}

TEST_F(ApiScheduler, ErrorsHaveCodes) {
  Scheduler scheduler = model_->NewScheduler().value();
  const auto code = [&](std::vector<Token> prompt) {
    const auto refused = scheduler.Submit(prompt, Greedy(9));
    return refused ? ErrorCode::kUnknown : refused.error().code;
  };
  EXPECT_EQ(code({}), ErrorCode::kInvalid);
  EXPECT_EQ(code({5, 700}), ErrorCode::kInvalid);
  EXPECT_EQ(code(std::vector<Token>(1000, 5)), ErrorCode::kInvalid);
  SchedulerOptions tiny;
  tiny.memory_limit_bytes = 1000;
  EXPECT_FALSE(model_->NewScheduler(tiny).has_value());
}

TEST_F(ApiScheduler, ATokenCancels) {
  GenerateOptions options = Greedy(-1);
  options.cancel = CancellationToken::Make();
  options.cancel.Cancel();
  const std::vector<Token> prompt(100, 7);
  // Of a session: while the prompt is read.
  Session session = model_->NewSession().value();
  const auto stopped = session.Generate(prompt, options).value();
  EXPECT_EQ(stopped.stop_reason, StopReason::kCancelled);
  EXPECT_TRUE(stopped.tokens.empty());
  EXPECT_TRUE(session.tokens().empty());
  Scheduler scheduler = model_->NewScheduler().value();
  auto pending = scheduler.Submit(prompt, options).value();
  EXPECT_EQ(pending.Wait().value().stop_reason, StopReason::kCancelled);
  // By what on_text says.
  GenerateOptions short_one = Greedy(-1);
  short_one.on_text = [](std::string_view) { return false; };
  auto cut = scheduler.Submit(prompt_, short_one).value();
  EXPECT_EQ(cut.Wait().value().stop_reason, StopReason::kCancelled);
}

TEST_F(ApiScheduler, ItsEndAnswersEverybody) {
  std::optional<Pending> pending;
  {
    Scheduler scheduler = model_->NewScheduler().value();
    pending = scheduler.Submit(std::vector<Token>(100, 7), Greedy(-1)).value();
  }
  const auto outcome = pending->Wait();
  EXPECT_TRUE(outcome.has_value() || outcome.error().code == ErrorCode::kUnavailable);
  pending->Cancel();
}

}  // namespace
}  // namespace winnow
