#include "runtime/generate/constraint.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

#include "runtime/generate/generate.h"
#include "runtime/testing/scheduler_run.h"

// A constraint that cannot go on ends the response with an error, wherever it detects that.
namespace winnow::runtime {
namespace {

using testing::SchedulerTest;

enum class Place { kMask, kAccept, kFinished };

// Has a problem() at its third token.
class Failing final : public TokenConstraint {
 public:
  explicit Failing(Place place) : place_(place) {}
  void Mask(std::span<float>) override { Meet(Place::kMask, 2); }
  bool Accept(TokenId) override {
    ++n_accepted_;
    Meet(Place::kAccept, 3);
    return problem_.empty();
  }
  // Like a grammar's: a constraint that cannot go on is finished.
  bool finished() const override {
    Meet(Place::kFinished, 3);
    return !problem_.empty();
  }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<Failing>(*this);
  }
  std::string problem() const override { return problem_; }

 private:
  void Meet(Place place, int n) const {
    if (place == place_ && n_accepted_ == n) problem_ = "the grammar is too deep";
  }
  Place place_;
  int n_accepted_ = 0;
  mutable std::string problem_;
};

// Allows one token, and accepts or refuses it.
class One final : public TokenConstraint {
 public:
  One(TokenId token, bool accepts) : token_(token), accepts_(accepts) {}
  void Mask(std::span<float> logits) override {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<TokenId>(i) != token_) logits[i] = -std::numeric_limits<float>::infinity();
    }
  }
  bool Accept(TokenId token) override { return accepts_ && token == token_; }
  bool finished() const override { return false; }
  std::unique_ptr<TokenConstraint> Copy() const override { return std::make_unique<One>(*this); }

 private:
  TokenId token_;
  bool accepts_;
};

class ConstraintProblem : public SchedulerTest, public ::testing::WithParamInterface<Place> {};

TEST_P(ConstraintProblem, EndsGenerate) {
  for (const int64_t max_tokens : {3, 9}) {
    const auto session = Session::Make(*engine_, {}).value();
    Failing constraint(GetParam());
    SamplerConfig config{.temperature = 0};
    BanEndOfGeneration(engine_->tokenizer(), config);
    Sampler sampler = Sampler::Make(config, engine_->model().hyperparameters().vocabulary).value();
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.constraint = &constraint;
    const auto made = Generate(*session, sampler, Prompt(20, 3), options);
    ASSERT_FALSE(made) << made->text;
    EXPECT_EQ(made.error().message, "the grammar is too deep");
  }
}

TEST_P(ConstraintProblem, EndsARequest) {
  Make(Options());
  Request request = MakeRequest(Prompt(20, 3), 9);
  request.constraint = std::make_unique<Failing>(GetParam());
  const auto answer = Submit(std::move(request));
  const auto other = Submit(MakeRequest(Prompt(20, 3), 9));
  RunAll();
  ASSERT_TRUE(answer->error) << "a finished answer";
  EXPECT_EQ(answer->error->message, "the grammar is too deep");
  EXPECT_EQ(answer->error->kind, ErrorKind::kInvalid);
  EXPECT_EQ(other->tokens(), Alone(Prompt(20, 3), 9));
  EXPECT_EQ(scheduler_->state().n_running, 0);
}

class ConstraintAndBias : public SchedulerTest {
 protected:
  // Checks the error of a response under a constraint, alone and scheduled.
  void ExpectError(const One& constraint, const SamplerConfig& config, const std::string& message,
                   ErrorKind kind) {
    const auto session = Session::Make(*engine_, {}).value();
    Sampler sampler = Sampler::Make(config, engine_->model().hyperparameters().vocabulary).value();
    const auto own = constraint.Copy();
    GenerateOptions options;
    options.max_tokens = 3;
    options.constraint = own.get();
    const auto made = Generate(*session, sampler, Prompt(20, 3), options);
    ASSERT_FALSE(made) << made->text;
    EXPECT_EQ(made.error().message, message);

    Make(Options());
    Request request = MakeRequest(Prompt(20, 3), 3);
    request.sampler = config;
    request.constraint = constraint.Copy();
    const auto answer = Submit(std::move(request));
    RunAll();
    ASSERT_TRUE(answer->error) << "a finished answer";
    EXPECT_EQ(answer->error->message, message);
    EXPECT_EQ(answer->error->kind, kind);
  }
};

// Regression: token 0 was returned, which the grammar forbids.
TEST_F(ConstraintAndBias, ThatTogetherLeaveNothingAreAnError) {
  for (const double temperature : {0.0, 0.8}) {
    SamplerConfig config{.temperature = temperature};
    config.logit_bias = {{7, -std::numeric_limits<float>::infinity()}};
    ExpectError(One(7, true), config,
                "sampling: `logit_bias` bans every token that could come next",
                ErrorKind::kInvalid);
  }
}

TEST_F(ConstraintAndBias, ATokenThatIsRefusedEndsTheAnswer) {
  ExpectError(One(7, false), {.temperature = 0}, "the grammar refuses token 7, which it allowed",
              ErrorKind::kInternal);
}

INSTANTIATE_TEST_SUITE_P(Places, ConstraintProblem,
                         ::testing::Values(Place::kMask, Place::kAccept, Place::kFinished));

}  // namespace
}  // namespace winnow::runtime
