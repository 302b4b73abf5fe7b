#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

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
  {
    Scheduler scheduler = model.NewScheduler().value();
    std::vector<Pending> together;
    together.reserve(6);
    for (int n = 0; n < 6; ++n) together.push_back(scheduler.Submit(prompt(n), Greedy(20)).value());
    for (int n = 0; n < 6; ++n) {
      const auto alone = scheduler.Submit(prompt(n), Greedy(20)).value().Wait().value();
      EXPECT_EQ(together[static_cast<size_t>(n)].Wait().value().tokens, alone.tokens) << n;
    }
  }
  // With `deterministic` a single token's products are summed in the same order as those of many.
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
  std::optional<Scheduler> scheduler = model_->NewScheduler().value();
  const auto code = [&](std::vector<Token> prompt) {
    const auto refused = scheduler->Submit(prompt, Greedy(9));
    return refused ? ErrorCode::kUnknown : refused.error().code;
  };
  EXPECT_EQ(code({}), ErrorCode::kInvalid);
  EXPECT_EQ(code({5, 700}), ErrorCode::kInvalid);
  EXPECT_EQ(code(std::vector<Token>(1000, 5)), ErrorCode::kInvalid);
  scheduler.reset();
  EXPECT_EQ(model_->NewScheduler({.memory_limit_bytes = 1000}).error().code, ErrorCode::kInvalid);
}

TEST_F(ApiScheduler, ATokenCancels) {
  GenerateOptions options = Greedy(-1);
  options.cancel = CancellationToken::Make();
  options.cancel.Cancel();
  const std::vector<Token> prompt(100, 7);
  // In a session: stops while the prompt is read.
  Session session = model_->NewSession().value();
  const auto stopped = session.Generate(prompt, options).value();
  EXPECT_EQ(stopped.stop_reason, StopReason::kCancelled);
  EXPECT_TRUE(stopped.tokens.empty());
  EXPECT_TRUE(session.tokens().empty());
  Scheduler scheduler = model_->NewScheduler().value();
  auto pending = scheduler.Submit(prompt, options).value();
  EXPECT_EQ(pending.Wait().value().stop_reason, StopReason::kCancelled);
  // on_text stops the generation.
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

// An earlier version ended the process when two steps overlapped.
TEST_F(ApiScheduler, WhoComputesMeanwhileIsTold) {
  Session session = model_->NewSession().value(), other = model_->NewSession().value();
  ASSERT_TRUE(other.Append(prompt_).has_value());
  const auto expect_busy = [&](const std::string& by) {
    const auto busy = [&](const char* call) {
      return std::string(call) + ": the model is in use by " + by;
    };
    const auto refused = other.Append(prompt_);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_EQ(refused.error().message, busy("Append"));
    EXPECT_EQ(other.Decode(5).error().message, busy("Decode"));
    EXPECT_EQ(other.Score(prompt_).error().message, busy("Score"));
    EXPECT_EQ(other.Generate(prompt_, Greedy(1)).error().message, busy("Generate"));
    EXPECT_EQ(model_->NewScheduler().error().code, ErrorCode::kBusy);
    EXPECT_EQ(other.tokens().size(), 4u);
    EXPECT_FALSE(other.logits().empty());
  };
  int n_told = 0;
  GenerateOptions options = Greedy(3);
  options.on_prefill = [&](double done) {
    if (done < 1 && ++n_told == 1) expect_busy("a session that reads its prompt");
  };
  const std::string busy = "NewScheduler: the model is in use by a call of a session";
  options.on_prompt = [&] {  // called between two steps of the session
    EXPECT_TRUE(other.Decode(5).has_value());
    EXPECT_EQ(model_->NewScheduler().error().message, busy);
  };
  options.on_token = [&](const GeneratedToken&) {
    EXPECT_EQ(model_->NewScheduler().error().message, busy);
    return true;
  };
  EXPECT_EQ(session.Generate(Document(60), options).value().tokens.size(), 3u);
  EXPECT_GT(n_told, 0);
  other.Truncate(0);
  ASSERT_TRUE(other.Append(prompt_).has_value());
  {
    Scheduler scheduler = model_->NewScheduler().value();
    expect_busy("a scheduler");
    EXPECT_TRUE(scheduler.Submit(prompt_, Greedy(2)).value().Wait().has_value());
  }
  EXPECT_TRUE(other.Append(prompt_).has_value());
  EXPECT_TRUE(model_->NewScheduler().has_value());
}

TEST_F(ApiScheduler, OptionsOutOfRangeAreNamed) {
  const auto error = [&](const SchedulerOptions& options) {
    const auto made = model_->NewScheduler(options);
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(error({.max_running = 0}), "scheduler: `max_running` is 0, expected at least 1");
  EXPECT_EQ(error({.memory_limit_bytes = std::numeric_limits<int64_t>::min()}),
            "scheduler: `memory_limit_bytes` is -9223372036854775808, expected at least 0");
  EXPECT_EQ(error({.max_token_gap_ms = 0.5}),
            "scheduler: `max_token_gap_ms` is 0.5, expected at least 1");
}

}  // namespace
}  // namespace winnow
