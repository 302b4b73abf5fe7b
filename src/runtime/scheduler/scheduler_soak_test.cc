// Random requests, some cancelled at random, compared with the output of each alone; also from
// several threads.
#include <algorithm>
#include <deque>
#include <thread>

#include "base/rng.h"
#include "base/sanitizer.h"
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_run.h"

namespace winnow::runtime {
namespace {

using testing::Answer;
using testing::SchedulerTest;

class SchedulerSoakTest : public SchedulerTest {
 protected:
  static constexpr int kMaxTokens = 11;
  struct Asked {
    std::shared_ptr<Answer> answer;
    std::vector<TokenId> prompt;
    int64_t max_tokens = 0;
    int method = 0;
    bool cancelled = false;
  };

  SchedulerSoakTest() {
    methods_ = {SessionOptions{}, Compressed("snapkv:window=4", 16), Compressed("h2o", 16),
                Compressed("streaming", 12), Compressed("tova", 14)};
  }

  SchedulerOptions SoakOptions() {
    SchedulerOptions options = Options();
    options.max_running = 6;
    options.max_unnamed = 3;
    const SequenceBytes one = PlanSequence(*Session::Make(*engine_, {}).value(), 120, 30).value();
    options.memory_limit_bytes = ModelBytes(*engine_) +
                                 StepBufferBytes(*engine_, 6, options.defaults.row_block) +
                                 4 * one.steady + one.prefill;
    return options;
  }
  int Draw(int n) { return static_cast<int>(rng_.Uniform() * n); }

  Request Next(Asked& asked) {
    constexpr int kLengths[] = {1, 2, 9, 17, 30, 64, 120};
    asked.prompt = Prompt(kLengths[Draw(7)], Draw(8));
    asked.max_tokens = Draw(kMaxTokens + 1);
    asked.method = Draw(static_cast<int>(methods_.size()));
    Request request = MakeRequest(asked.prompt, asked.max_tokens);
    request.options = methods_[static_cast<size_t>(asked.method)];
    request.priority = Draw(3);
    request.keep = Draw(3) == 0;
    // With a method, the result would depend on the order of the requests.
    request.reuse_prefix = asked.method == 0;
    request.n = 1 + Draw(3) / 2;
    return request;
  }
  void Check(const Asked& asked) {
    Answer& answer = *asked.answer;
    ASSERT_TRUE(answer.done());
    ASSERT_FALSE(answer.error) << answer.error->message;
    const auto key = std::pair(asked.prompt, asked.method);
    if (!alone_.contains(key)) {
      alone_[key] = Alone(asked.prompt, kMaxTokens, methods_[static_cast<size_t>(asked.method)]);
    }
    const std::vector<TokenId>& alone = alone_[key];
    for (auto& [number, choice] : answer.choices) {
      if (asked.cancelled && choice.finish == Finish::kCancelled) continue;
      // With greedy sampling, a shorter response is a prefix of a longer one.
      ASSERT_EQ(choice.tokens,
                std::vector<TokenId>(alone.begin(), alone.begin() + asked.max_tokens));
    }
  }

  Rng rng_{20261124};
  std::vector<SessionOptions> methods_;
  std::map<std::pair<std::vector<TokenId>, int>, std::vector<TokenId>> alone_;
};

#ifdef WINNOW_SANITIZES_MEMORY  // the server's soak (make soak) sends more
constexpr int kRandomRequests = 600;
#else
constexpr int kRandomRequests = 2000;
#endif

TEST_F(SchedulerSoakTest, ManyRequests) {
  Make(SoakOptions());
  std::deque<std::pair<Asked, Ticket>> asked;
  int n_cancelled = 0;
  for (int i = 0; i < kRandomRequests; ++i) {
    Asked next;
    Request request = Next(next);
    next.answer = Submit(std::move(request));
    if (next.answer->error) {
      ASSERT_EQ(next.answer->error->kind, ErrorKind::kQueueFull) << next.answer->error->message;
      RunAll();
      continue;
    }
    asked.emplace_back(std::move(next), *ticket_);
    if (Draw(10) == 0) {
      auto& [victim, ticket] = asked[static_cast<size_t>(Draw(static_cast<int>(asked.size())))];
      victim.cancelled = true;
      ticket.Cancel();
      ++n_cancelled;
    }
    for (int rounds = Draw(6); rounds > 0; --rounds) scheduler_->Round();
    while (!asked.empty() && asked.front().first.answer->done()) {
      ASSERT_NO_FATAL_FAILURE(Check(asked.front().first)) << "request " << i;
      asked.pop_front();
    }
  }
  RunAll();
  for (const auto& [last, ticket] : asked) ASSERT_NO_FATAL_FAILURE(Check(last));
  EXPECT_GT(n_cancelled, kRandomRequests / 20);
  const SchedulerState state = scheduler_->state();
  EXPECT_EQ(state.n_running + state.n_waiting, 0);
  EXPECT_EQ(state.n_failed, 0);
  EXPECT_LE(state.n_idle_sessions, 3);
}

// The same from several threads, with the scheduler on its own thread.
TEST_F(SchedulerSoakTest, FromSeveralThreads) {
  SchedulerOptions options = SoakOptions();
  options.defaults.on_projections = {};
  Make(options);
  scheduler_->Start();
  constexpr int kThreads = 3, kEach = 60;
  std::vector<Request> requests[kThreads];
  std::vector<Asked> asked[kThreads];
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kEach; ++i) {
      requests[t].push_back(Next(asked[t].emplace_back()));
      asked[t].back().cancelled = Draw(8) == 0;
    }
  }
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Asked& one = asked[t][static_cast<size_t>(i)];
        Request& request = requests[t][static_cast<size_t>(i)];
        one.answer = std::make_shared<Answer>();
        one.answer->n_wanted = request.n;
        request.on_event = [answer = one.answer](const Event& event) { Record(*answer, event, 0); };
        auto outcome = scheduler_->Submit(std::move(request));
        ASSERT_TRUE(std::holds_alternative<Ticket>(outcome));
        if (one.cancelled) std::get<Ticket>(outcome).Cancel();
        (void)scheduler_->state();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  scheduler_->Drain();
  EXPECT_EQ(scheduler_->state().n_waiting, 0);
  scheduler_->Stop();
  for (const auto& of_thread : asked) {
    for (const Asked& one : of_thread) ASSERT_NO_FATAL_FAILURE(Check(one));
  }
}

TEST_F(SchedulerSoakTest, StopAnswersEverybody) {
  Make(SoakOptions());
  scheduler_->Start();
  std::atomic<int> n_ended = 0;
  constexpr int kRequests = 40;
  std::optional<Ticket> last;
  for (int i = 0; i < kRequests; ++i) {
    Request request = MakeRequest(Prompt(80, i), 30);
    request.on_event = [&](const Event& event) {
      if (event.kind == Event::Kind::kFinished || event.kind == Event::Kind::kFailed) ++n_ended;
    };
    last = std::get<Ticket>(scheduler_->Submit(std::move(request)));
  }
  scheduler_->Stop();
  EXPECT_EQ(n_ended, kRequests);
  bool refused = false;
  scheduler_->ListSessions([&](auto) { refused = true; });
  EXPECT_TRUE(refused);
  scheduler_.reset();
  last->Cancel();  // tickets may outlive the scheduler
}

}  // namespace
}  // namespace winnow::runtime
