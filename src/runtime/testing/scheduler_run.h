#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "compression/registry.h"
#include "runtime/scheduler/scheduler.h"
#include "runtime/testing/tiny_engine.h"

namespace winnow::runtime::testing {

// A clock that advances only when told to.
class FakeClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::nanoseconds(nanoseconds_)); }
  void Advance(double ms) { nanoseconds_ += static_cast<int64_t>(ms * 1e6); }
  double ms() const { return static_cast<double>(nanoseconds_) / 1e6; }

 private:
  std::atomic<int64_t> nanoseconds_ = 1'000'000'000;
};

// Each look at it takes 1 ms.
class TickingClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::milliseconds(++n_looks_)); }

 private:
  mutable std::atomic<int> n_looks_ = 0;
};

// The events of a request.
struct Answer {
  struct Choice {
    std::vector<TokenId> tokens;
    std::vector<double> times_ms;  // of the tokens
    std::string text;
    std::vector<Event> events;  // one per token
    std::optional<Finish> finish;
    Event finished;
  };
  std::map<int, Choice> choices;
  std::optional<RequestError> error;
  bool started = false;
  int64_t n_prompt = 0, n_reused = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
  int n_prefill_events = 0;
  double ended_ms = 0;
  int n_last = 0;  // events that ended the request or a choice
  int n_wanted = 1;

  bool done() const { return error.has_value() || n_last == n_wanted; }
  const std::vector<TokenId>& tokens() { return choices[0].tokens; }
  Finish finish() { return choices[0].finish.value_or(Finish::kError); }
};

inline void Record(Answer& answer, const Event& event, double now_ms) {
  EXPECT_FALSE(answer.error.has_value()) << "an event after kFailed";
  Answer::Choice& choice = answer.choices[event.choice];
  switch (event.kind) {
    case Event::Kind::kPrefill:
      EXPECT_FALSE(answer.started);
      EXPECT_LE(event.n_done, event.n_all);
      ++answer.n_prefill_events;
      break;
    case Event::Kind::kStarted:
      EXPECT_FALSE(answer.started);
      answer.started = true;
      answer.n_prompt = event.n_prompt;
      answer.n_reused = event.n_reused;
      answer.reuse = event.reuse;
      break;
    case Event::Kind::kToken:
      EXPECT_TRUE(answer.started && !choice.finish);
      choice.tokens.push_back(event.token);
      choice.times_ms.push_back(now_ms);
      choice.text += event.text;
      choice.events.push_back(event);
      break;
    case Event::Kind::kFinished:
      EXPECT_FALSE(choice.finish);
      choice.finish = event.finish;
      choice.text += event.rest;
      choice.finished = event;
      answer.ended_ms = now_ms;
      ++answer.n_last;
      break;
    case Event::Kind::kFailed:
      answer.error = event.error;
      answer.ended_ms = now_ms;
      ++answer.n_last;
      break;
  }
}

// A scheduler without a thread, on a tiny model, with a fake clock. Sums of the reference backend
// do not depend on how many rows are computed together, so responses are bit-identical to those of
// a request alone.
class SchedulerTest : public ::testing::Test {
 protected:
  static constexpr int64_t kContext = 512;
  static constexpr double kRowMs = 0.1;  // per row of a layer

  SchedulerTest() : engine_(MakeEngine()) {}

  static std::unique_ptr<Engine> MakeEngine() {
    model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
    spec.context = kContext;
    return TinyEngine(spec, {.n_threads = 1, .target = "reference"});
  }

  // The clock advances with each row that is computed.
  SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_token_gap_ms = 20;
    options.defaults.row_block = 64;
    options.defaults.on_projections = [this](const attention::Projections& rows) {
      if (!rows.rotated) clock_.Advance(row_ms_ * static_cast<double>(rows.positions.size()));
    };
    return options;
  }
  void Make(const SchedulerOptions& options) {
    auto made = Scheduler::Make(*engine_, options, log_, &clock_);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    scheduler_ = std::move(made).value();
  }

  static SessionOptions Compressed(const std::string& method, int64_t size) {
    SessionOptions options;
    options.compression.method = compression::MakeMethod(method).value();
    options.compression.size = size;
    return options;
  }
  static Request MakeRequest(std::vector<TokenId> prompt, int64_t max_tokens) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampler.temperature = 0;
    request.ignore_eos = true;
    return request;
  }
  // Tokens that differ from request to request (`number`).
  static std::vector<TokenId> Prompt(int n, int number) {
    std::vector<TokenId> tokens;
    tokens.reserve(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) tokens.push_back((i * 31 + number * 17 + i * i * number) % 60 + 5);
    return tokens;
  }

  std::shared_ptr<Answer> Submit(Request request) {
    auto answer = std::make_shared<Answer>();
    answer->n_wanted = request.n;
    request.on_event = [this, answer](const Event& event) { Record(*answer, event, clock_.ms()); };
    auto outcome = scheduler_->Submit(std::move(request));
    if (const auto* error = std::get_if<RequestError>(&outcome)) {
      answer->error = *error;
      refused_ = *error;
    } else {
      ticket_ = std::get<Ticket>(outcome);
    }
    return answer;
  }
  void RunAll() {
    while (scheduler_->Round()) {
    }
  }
  // Runs rounds until the condition holds; fails if there is nothing left to do.
  template <class Condition>
  void RunUntil(const Condition& condition) {
    while (!condition()) ASSERT_TRUE(scheduler_->Round());
  }

  // The tokens that a request gets alone in its own session, with greedy sampling.
  std::vector<TokenId> Alone(const std::vector<TokenId>& prompt, int64_t max_tokens,
                             const SessionOptions& options = {}) {
    const auto session = Session::Make(*engine_, options).value();
    SamplerConfig config = {.temperature = 0};
    BanEndOfGeneration(engine_->tokenizer(), config);
    Sampler sampler = Sampler::Make(config, kVocabulary).value();
    GenerateOptions generate;
    generate.max_tokens = max_tokens;
    return Generate(*session, sampler, prompt, generate).value().tokens;
  }

  std::unique_ptr<Engine> engine_;
  FakeClock clock_;
  double row_ms_ = kRowMs;
  NullLog log_;
  std::unique_ptr<Scheduler> scheduler_;
  std::optional<Ticket> ticket_;  // of the last request
  RequestError refused_;
};

}  // namespace winnow::runtime::testing
