#include <filesystem>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_sessions_run.h"

// Requests that replace a named session (Request::replaces).
namespace winnow::runtime {
namespace {

class SchedulerReplaceTest : public testing::SchedulerSessionsTest {
 protected:
  static Request Replacing(std::vector<TokenId> prompt, int64_t n, const std::string& id = "slot") {
    Request request = MakeRequest(std::move(prompt), n);
    request.replaces = id;
    return request;
  }
  std::shared_ptr<testing::Answer> Replace(const std::vector<TokenId>& prompt, int64_t n) {
    auto answer = Submit(Replacing(prompt, n));
    RunAll();
    return answer;
  }
  int64_t CountTokens(const std::string& id) {
    for (const SessionInfo& info : List()) {
      if (info.id == id) return info.n_tokens;
    }
    return -1;
  }
};

TEST_F(SchedulerReplaceTest, AConversationIsReadWholeAndItsBeginningFound) {
  Make(WithFolder());
  const auto first = Replace(Prompt(60, 1), 6);
  EXPECT_EQ(first->n_reused, 0);
  EXPECT_EQ(CountTokens("slot"), 65) << "the last token of an answer is not read";
  ASSERT_EQ(Problem(Save("slot", "file")), "");

  const auto all = Joined(Joined(Prompt(60, 1), first->tokens()), Prompt(7, 2));
  const auto second = Replace(all, 6);
  EXPECT_EQ(second->n_reused, 65);
  EXPECT_EQ(second->reuse, PrefixReuse::kExact);
  EXPECT_EQ(second->tokens(), Alone(all, 6));
  EXPECT_EQ(CountTokens("slot"), 78);
  EXPECT_EQ(scheduler_->state().n_idle_sessions, 1) << "it was not copied";

  // Another text replaces the session, then the file's.
  EXPECT_EQ(Replace(Prompt(40, 5), 3)->tokens(), Alone(Prompt(40, 5), 3));
  EXPECT_EQ(CountTokens("slot"), 42);
  ASSERT_EQ(Problem(Restore("slot", "file")), "");
  const auto third = Replace(all, 6);
  EXPECT_EQ(third->n_reused, 65);
  EXPECT_EQ(third->tokens(), second->tokens());
}

TEST_F(SchedulerReplaceTest, AnotherEndOfTheSameTextCutsTheSessionBack) {
  Make(Options());
  Replace(Prompt(60, 1), 6);
  const auto other = Joined(Prompt(60, 1), Prompt(9, 3));
  const auto answer = Replace(other, 4);
  EXPECT_EQ(answer->n_reused, 60);
  EXPECT_EQ(answer->tokens(), Alone(other, 4));
  EXPECT_EQ(CountTokens("slot"), 72);
  EXPECT_EQ(scheduler_->state().n_idle_sessions, 1) << "it was not copied";
}

TEST_F(SchedulerReplaceTest, CompressedOnesGoOnFromTheirEnd) {
  Make(Options());
  const SessionOptions options = Compressed("streaming", 32);
  Request request = Replacing(Prompt(60, 1), 6);
  request.options = options;
  const auto first = Submit(std::move(request));
  RunAll();
  const auto all = Joined(Joined(Prompt(60, 1), first->tokens()), Prompt(7, 2));
  request = Replacing(all, 6);
  request.options = options;
  const auto second = Submit(std::move(request));
  RunAll();
  EXPECT_EQ(second->n_reused, 65);
  EXPECT_EQ(second->reuse, PrefixReuse::kCompressed);
  EXPECT_EQ(CountTokens("slot"), 78);
}

TEST_F(SchedulerReplaceTest, OneRequestAtATime) {
  Make(Options());
  const auto first = Submit(Replacing(Prompt(60, 1), 6));
  EXPECT_EQ(Submit(Replacing(Prompt(5, 2), 6))->error->kind, ErrorKind::kBusy);
  Request named = MakeRequest(Prompt(5, 2), 3);
  named.session = "slot";
  EXPECT_EQ(Submit(std::move(named))->error->kind, ErrorKind::kBusy);
  RunAll();
  EXPECT_EQ(first->finish(), Finish::kLength);
  Request both = Replacing(Prompt(5, 2), 3);
  both.session = "slot";
  EXPECT_EQ(Submit(std::move(both))->error->param, "session");
  EXPECT_EQ(Submit(Replacing(Prompt(5, 2), 3, "../slot"))->error->kind, ErrorKind::kInvalid);
}

// A client that sees its request end or fail may send the next one at once.
TEST_F(SchedulerReplaceTest, ItsEndIsToldWhenTheSessionIsFree) {
  Make(Options());
  for (const bool cancels : {false, true}) {
    SCOPED_TRACE(cancels);
    std::shared_ptr<testing::Answer> next;
    Request request = Replacing(Prompt(60, 1), 6);
    request.on_event = [&](const Event& event) {
      if (event.kind == Event::Kind::kFinished) next = Submit(Replacing(Prompt(20, 2), 3));
    };
    auto outcome = scheduler_->Submit(std::move(request));
    if (cancels) std::get<Ticket>(outcome).Cancel();
    RunAll();
    ASSERT_NE(next, nullptr);
    ASSERT_FALSE(next->error) << next->error->message;
    EXPECT_EQ(next->tokens(), Alone(Prompt(20, 2), 3));
    EXPECT_EQ(CountTokens("slot"), 22);
  }
}

// Whether the request continues the session, truncates it or uses nothing of it.
TEST_F(SchedulerReplaceTest, ARequestThatEndsInItsPromptLeavesWhatItBeganWith) {
  Make(Options());
  const auto cancel = [&](std::vector<TokenId> prompt) {
    const auto answer = Submit(Replacing(std::move(prompt), 5));
    RunUntil([&] { return scheduler_->state().n_running == 1; });
    ticket_->Cancel();
    RunAll();
    EXPECT_FALSE(answer->started);
  };
  cancel(Prompt(300, 7));
  EXPECT_EQ(CountTokens("slot"), -1) << "there was none";
  const auto first = Replace(Prompt(60, 1), 6);
  cancel(Prompt(300, 2));
  EXPECT_EQ(CountTokens("slot"), 65);
  cancel(Joined(Joined(Prompt(60, 1), first->tokens()), Prompt(300, 2)));
  EXPECT_EQ(CountTokens("slot"), 65);
  cancel(Joined(Prompt(60, 1), Prompt(300, 2)));
  EXPECT_EQ(CountTokens("slot"), 60);
  const auto next = Replace(Joined(Prompt(60, 1), Prompt(5, 3)), 4);
  EXPECT_EQ(next->n_reused, 60);
  EXPECT_EQ(next->tokens(), Alone(Joined(Prompt(60, 1), Prompt(5, 3)), 4));
}

// Without a folder nothing can be saved to make room, and a session that a request works on is not
// closed.
TEST_F(SchedulerReplaceTest, WhatIsReplacedMakesRoom) {
  SchedulerOptions options = Options();
  options.max_running = 2;
  for (const char* method : {"", "streaming"}) {
    SCOPED_TRACE(method);
    const SessionOptions kv = *method == 0 ? SessionOptions{} : Compressed(method, 64);
    const SequenceBytes one = PlanSequence(*Session::Make(*engine_, kv).value(), 200, 20).value();
    options.memory_limit_bytes = ModelBytes(*engine_) +
                                 StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                                 one.steady + one.prefill;
    Make(options);
    const auto replace = [&](std::vector<TokenId> prompt) {
      Request request = Replacing(std::move(prompt), 20);
      request.options = kv;
      const auto answer = Submit(std::move(request));
      RunAll();
      ASSERT_FALSE(answer->error) << answer->error->message;
      EXPECT_EQ(answer->tokens().size(), 20U);
    };
    replace(Prompt(200, 1));
    replace(Prompt(200, 2));
    replace(Joined(Prompt(150, 2), Prompt(50, 3)));
    EXPECT_EQ(CountTokens("slot"), 219);
  }
}

TEST_F(SchedulerReplaceTest, ARefusedRequestClaimsNothing) {
  SchedulerOptions options = Options();
  options.max_waiting = 1;
  Make(options);
  Replace(Prompt(60, 1), 6);
  Submit(MakeRequest(Prompt(20, 1), 3));
  EXPECT_EQ(Submit(Replacing(Prompt(20, 2), 3))->error->kind, ErrorKind::kQueueFull);
  EXPECT_EQ(Submit(Replacing(Prompt(20, 2), 3, "new"))->error->kind, ErrorKind::kQueueFull);
  RunAll();
  EXPECT_EQ(CountTokens("slot"), 65);
  EXPECT_FALSE(Exercise("slot", Prompt(5, 2), 3)->error);
  EXPECT_EQ(Exercise("new", Prompt(5, 2), 3)->error->kind, ErrorKind::kNotFound);
  EXPECT_FALSE(Replace(Prompt(20, 2), 3)->error);
}

// The folder may hold a session of that name that is not in memory.
TEST_F(SchedulerReplaceTest, AfterARestart) {
  Make(WithFolder());
  const auto first = Replace(Prompt(100, 1), 6);
  scheduler_->Drain();
  Make(WithFolder());
  const auto all = Joined(Joined(Prompt(100, 1), first->tokens()), Prompt(7, 2));
  const auto second = Replace(all, 6);
  ASSERT_FALSE(second->error) << second->error->message;
  EXPECT_EQ(second->n_reused, 105);
  EXPECT_EQ(second->tokens(), Alone(all, 6));
  EXPECT_EQ(CountTokens("slot"), 118);
  scheduler_->Drain();
  Make(WithFolder());
  EXPECT_EQ(Exercise("slot", Prompt(5, 2), 3)->n_reused, 118);
}

}  // namespace
}  // namespace winnow::runtime
