#include "runtime/scheduler/scheduler.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/testing/scheduler_run.h"

namespace winnow::runtime {
namespace {

using testing::Answer;
using testing::SchedulerTest;

TEST_F(SchedulerTest, AnswersAreThoseOfARequestAlone) {
  Make(Options());
  std::vector<std::shared_ptr<Answer>> answers;
  std::vector<Request> alone;
  for (int i = 0; i < 12; ++i) {
    Request request = MakeRequest(Prompt(5 + 23 * i, i), 3 + 5 * (i % 5));
    if (i % 3 == 1) request.options = Compressed("snapkv:window=4", 24);
    if (i % 3 == 2) request.options = Compressed("h2o", 32);
    alone.push_back(MakeRequest(request.prompt, request.max_tokens));
    alone.back().options = request.options;
    answers.push_back(Submit(std::move(request)));
  }
  RunAll();
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_FALSE(answers[i]->error) << answers[i]->error->message;
    EXPECT_EQ(answers[i]->finish(), Finish::kLength);
    EXPECT_EQ(answers[i]->n_prompt, std::ssize(alone[i].prompt));
    EXPECT_EQ(answers[i]->tokens(), Alone(alone[i].prompt, alone[i].max_tokens,
                                          alone[i].options.value_or(SessionOptions{})));
  }
  const SchedulerState state = scheduler_->state();
  EXPECT_EQ(state.n_running, 0);
  EXPECT_EQ(state.n_waiting, 0);
  EXPECT_EQ(state.n_requests, 12);
}

TEST_F(SchedulerTest, NothingIsLeftWhereNothingIsKept) {
  SchedulerOptions options = Options();
  options.max_unnamed = 0;
  Make(options);
  for (int i = 0; i < 5; ++i) Submit(MakeRequest(Prompt(40, i), 6));
  RunAll();
  EXPECT_EQ(scheduler_->state().live_bytes, 0);
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  EXPECT_EQ(scheduler_->state().n_generated_tokens, 30);
  EXPECT_EQ(scheduler_->state().n_prompt_tokens, 200);
}

TEST_F(SchedulerTest, TheContextEndsAnAnswer) {
  Make(Options());
  Request request = MakeRequest(Prompt(kContext - 3, 1), -1);
  const auto answer = Submit(std::move(request));
  RunAll();
  EXPECT_EQ(answer->finish(), Finish::kContext);
  EXPECT_EQ(answer->tokens().size(), 4u);  // the last token is not read
}

TEST_F(SchedulerTest, ADefaultLimitsAnswersThatNameNone) {
  SchedulerOptions options = Options();
  options.default_max_tokens = 7;
  Make(options);
  const auto answer = Submit(MakeRequest(Prompt(10, 1), -1));
  RunAll();
  EXPECT_EQ(answer->finish(), Finish::kLength);
  EXPECT_EQ(answer->tokens().size(), 7u);
}

TEST_F(SchedulerTest, ChoicesGoOnFromOnePrompt) {
  Make(Options());
  Request request = MakeRequest(Prompt(30, 1), 12);
  request.n = 3;
  const auto greedy = Submit(std::move(request));
  Request drawn = MakeRequest(Prompt(30, 1), 12);
  drawn.n = 3;
  drawn.sampler = {.temperature = 5, .top_k = 0, .seed = 7};
  const auto different = Submit(std::move(drawn));
  Request same = MakeRequest(Prompt(30, 1), 12);
  same.sampler = {.temperature = 5, .top_k = 0, .seed = 8};
  const auto second = Submit(std::move(same));
  RunAll();
  const auto expected = Alone(Prompt(30, 1), 12);
  for (int choice = 0; choice < 3; ++choice) {
    EXPECT_EQ(greedy->choices[choice].tokens, expected);
    EXPECT_EQ(greedy->choices[choice].finish, Finish::kLength);
  }
  EXPECT_EQ(scheduler_->state().n_requests, 3);
  EXPECT_NE(different->choices[0].tokens, different->choices[1].tokens);
  EXPECT_NE(different->choices[1].tokens, different->choices[2].tokens);
  // Choice i is sampled with seed + i.
  EXPECT_EQ(different->choices[1].tokens, second->choices[0].tokens);
}

TEST_F(SchedulerTest, AStopStringEndsOneAnswerOnly) {
  Make(Options());
  const auto plain = Submit(MakeRequest(Prompt(30, 2), 20));
  RunAll();
  const std::string text = plain->choices[0].text;
  ASSERT_GT(text.size(), 6u);
  const std::string stop = text.substr(text.size() / 2, 2);
  Request request = MakeRequest(Prompt(30, 2), 20);
  request.stop = {stop};
  const auto stopped = Submit(std::move(request));
  const auto other = Submit(MakeRequest(Prompt(30, 2), 20));
  RunAll();
  EXPECT_EQ(stopped->finish(), Finish::kStopString);
  EXPECT_EQ(stopped->choices[0].finished.stopping_word, stop);
  EXPECT_EQ(stopped->choices[0].text, text.substr(0, text.find(stop)));
  EXPECT_EQ(other->choices[0].text, text);
}

TEST_F(SchedulerTest, LogProbabilitiesAreThoseOfTheModel) {
  Make(Options());
  Request request = MakeRequest(Prompt(20, 3), 4);
  request.n_probs = testing::kVocabulary;
  const auto answer = Submit(std::move(request));
  RunAll();
  const auto session = Session::Make(*engine_, {}).value();
  ASSERT_TRUE(session->Prefill(Prompt(20, 3)).value());
  const Event& first = answer->choices[0].events[0];
  double sum = 0;
  for (const float logit : session->logits()) sum += std::exp(static_cast<double>(logit));
  const auto expected = [&](TokenId token) {
    return session->logits()[static_cast<size_t>(token)] - std::log(sum);
  };
  EXPECT_NEAR(first.log_probability, expected(first.token), 1e-5);
  ASSERT_EQ(first.top.size(), static_cast<size_t>(testing::kVocabulary));
  double total = 0;
  for (size_t i = 0; i < first.top.size(); ++i) {
    EXPECT_NEAR(first.top[i].log_probability, expected(first.top[i].token), 1e-5);
    if (i > 0) {
      EXPECT_LE(first.top[i].log_probability, first.top[i - 1].log_probability);
    }
    total += std::exp(static_cast<double>(first.top[i].log_probability));
  }
  EXPECT_NEAR(total, 1, 1e-5);
  EXPECT_EQ(first.top[0].token, first.token);  // greedy, and nothing banned is the best
}

// Allows a fixed sequence of tokens, then nothing.
class Script final : public TokenConstraint {
 public:
  explicit Script(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  void Mask(std::span<float> logits) override {
    for (size_t token = 0; token < logits.size(); ++token) {
      if (n_ < tokens_.size() && static_cast<TokenId>(token) == tokens_[n_]) continue;
      logits[token] = -std::numeric_limits<float>::infinity();
    }
  }
  bool Accept(TokenId token) override {
    const bool accepted = n_ < tokens_.size() && token == tokens_[n_];
    n_ += accepted ? 1 : 0;
    return accepted;
  }
  bool finished() const override { return finishes_ && n_ == tokens_.size(); }
  std::unique_ptr<TokenConstraint> Copy() const override { return std::make_unique<Script>(*this); }
  bool finishes_ = true;

 private:
  std::vector<TokenId> tokens_;
  size_t n_ = 0;
};

TEST_F(SchedulerTest, AConstraintDecidesWhatMayCome) {
  Make(Options());
  Request request = MakeRequest(Prompt(20, 3), 9);
  request.constraint = std::make_unique<Script>(std::vector<TokenId>{11, 23, 42});
  request.n = 2;
  const auto answer = Submit(std::move(request));
  Request endless = MakeRequest(Prompt(20, 3), 9);
  auto script = std::make_unique<Script>(std::vector<TokenId>{11});
  script->finishes_ = false;
  endless.constraint = std::move(script);
  const auto stuck = Submit(std::move(endless));
  const auto other = Submit(MakeRequest(Prompt(20, 3), 9));
  RunAll();
  for (int choice = 0; choice < 2; ++choice) {
    EXPECT_EQ(answer->choices[choice].tokens, (std::vector<TokenId>{11, 23, 42}));
    EXPECT_EQ(answer->choices[choice].finish, Finish::kStop);
  }
  ASSERT_TRUE(stuck->error);
  EXPECT_EQ(stuck->error->message, "the grammar allows no token after 1 generated tokens");
  EXPECT_EQ(other->tokens(), Alone(Prompt(20, 3), 9));
}

// The masked logits are one more row.
TEST_F(SchedulerTest, AConstraintHasItsBytes) {
  Make(Options());
  const auto reserved = [&](std::unique_ptr<TokenConstraint> constraint) {
    Request request = MakeRequest(Prompt(20, 3), 3);
    request.reuse_prefix = request.keep = false;
    request.constraint = std::move(constraint);
    const auto answer = Submit(std::move(request));
    RunUntil([&] { return answer->tokens().size() == 1; });
    const int64_t bytes = scheduler_->state().running.at(0).reserved_bytes;
    RunAll();
    return bytes;
  };
  constexpr int64_t kLogitBytes = testing::kVocabulary * int64_t{sizeof(float)};
  EXPECT_EQ(reserved(std::make_unique<Script>(std::vector<TokenId>{11, 23, 42})),
            reserved(nullptr) + kLogitBytes);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverBeServed) {
  SchedulerOptions options = Options();
  options.max_running = 4;
  Make(options);
  const auto refused = [&](Request request) {
    const auto answer = Submit(std::move(request));
    return answer->error ? answer->error->message : "";
  };
  EXPECT_EQ(refused(MakeRequest({}, 3)), "the prompt is empty: there is nothing to continue");
  EXPECT_EQ(refused_.kind, ErrorKind::kInvalid);
  EXPECT_EQ(refused(MakeRequest({5, 70}, 3)), "token 70 is outside the vocabulary of 70");
  Request many = MakeRequest({5}, 3);
  many.n = 5;
  EXPECT_EQ(refused(std::move(many)), "n is 5, expected 1 to 4");
  Request hot = MakeRequest({5}, 3);
  hot.sampler.top_p = 2;
  EXPECT_EQ(refused(std::move(hot)), "sampling: top_p is 2, expected 0 to 1");
  EXPECT_EQ(refused(MakeRequest(Prompt(kContext + 1, 1), 3)),
            "the prompt is 513 tokens, the context holds 512");
  EXPECT_EQ(refused_.param, "prompt");
  Request few = MakeRequest({5}, 3);
  few.options = SessionOptions{.compression = {.memory_bytes = 1}};
  EXPECT_NE(refused(std::move(few)).find("1 are allowed"), std::string::npos);
  EXPECT_EQ(refused_.kind, ErrorKind::kInvalid);
  EXPECT_EQ(refused_.param, "memory_bytes");
  Request share = MakeRequest(Prompt(40, 1), 3);
  share.options = Compressed("h2o", 0);
  share.options->compression.ratio = 1e-6;
  EXPECT_NE(refused(std::move(share)).find("a share of 1e-06 of 40 tokens"), std::string::npos);
  EXPECT_EQ(refused_.param, "ratio");
  Request near = MakeRequest({5}, 3);
  near.options = SessionOptions{
      .compression = {.method = compression::MakeMethod("h2o").value(), .quality = 1}};
  EXPECT_NE(refused(std::move(near)).find("give a size, a ratio or bytes"), std::string::npos);
  EXPECT_EQ(refused_.param, "quality");
  Request unknown = MakeRequest({5}, 3);
  unknown.session = "nobody";
  EXPECT_EQ(refused(std::move(unknown)), "there is no session nobody");
  EXPECT_EQ(refused_.kind, ErrorKind::kNotFound);
  EXPECT_FALSE(scheduler_->Round());
}

TEST_F(SchedulerTest, AnswersMoreThanItWasAskedForAtATime) {
  SchedulerOptions options = Options();
  options.max_running = 2;
  options.max_waiting = 3;
  Make(options);
  std::vector<std::shared_ptr<Answer>> answers(3);
  for (int i = 0; i < 3; ++i) {
    answers[static_cast<size_t>(i)] = Submit(MakeRequest(Prompt(9, i), 4));
  }
  const auto refused = Submit(MakeRequest(Prompt(9, 9), 4));
  ASSERT_TRUE(refused->error);
  EXPECT_EQ(refused->error->kind, ErrorKind::kQueueFull);
  while (scheduler_->Round()) EXPECT_LE(scheduler_->state().n_running, 2);
  for (const auto& answer : answers) EXPECT_EQ(answer->finish(), Finish::kLength);
}

// A NaN in the weights: an embedding row that contains NaN fails only the requests that use its
// token.
TEST_F(SchedulerTest, LogitsThatAreNoNumbersFailThatRequestOnly) {
  const auto file = testing::TinyFileWithNan(model::testing::MakeTinySpec("llama"), 66);
  engine_ = Engine::Open({.file = file, .n_threads = 1}, log_).value();
  Make(Options());
  std::vector<TokenId> poisoned = Prompt(9, 1);
  poisoned.back() = 66;
  const auto wrong = Submit(MakeRequest(poisoned, 4));
  const auto right = Submit(MakeRequest(Prompt(9, 1), 4));
  RunAll();
  ASSERT_TRUE(wrong->error);
  EXPECT_NE(wrong->error->message.find("NaN"), std::string::npos) << wrong->error->message;
  EXPECT_EQ(right->finish(), Finish::kLength);
  EXPECT_EQ(scheduler_->state().n_failed, 1);
}

}  // namespace
}  // namespace winnow::runtime
