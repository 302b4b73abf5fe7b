// Exceptions in the scheduler's thread: refused memory, or what a caller's function throws.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/testing/allocations.h"
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

using testing::Answer;

// Throws when it is asked for the n-th time.
class ThrowingClock final : public Clock {
 public:
  TimePoint now() const override {
    if (armed_ && --left_ == 0) throw std::bad_alloc();
    return clock_.now();
  }
  void Throw(int n) {
    armed_ = true;
    left_ = n;
  }
  bool has_thrown() const { return left_ <= 0; }

 private:
  testing::FakeClock clock_;
  bool armed_ = false;
  mutable int left_ = 1;
};

class SchedulerExceptionsTest : public testing::SchedulerSessionsTest {
 protected:
  void MakeThrowing(const SchedulerOptions& options) {
    auto made = Scheduler::Make(*engine_, options, log_, &throwing_);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    scheduler_ = std::move(made).value();
  }
  std::shared_ptr<Answer> CreateSession(const std::string& name, Request document) {
    auto answer = std::make_shared<Answer>();
    document.on_event = {};
    scheduler_->CreateSession(name, std::move(document), [answer](const auto& outcome) {
      ++answer->n_last;
      if (const auto* error = std::get_if<RequestError>(&outcome)) answer->error = *error;
    });
    return answer;
  }
  // Whatever happened before, the scheduler is as a new one.
  void ExpectServing() {
    EXPECT_EQ(scheduler_->state().n_running, 0);
    EXPECT_EQ(scheduler_->state().n_waiting, 0);
    const auto prompt = Prompt(20, 7);
    const auto answer = Submit(MakeRequest(prompt, 4));
    RunAll();
    ASSERT_FALSE(answer->error) << answer->error->message;
    EXPECT_EQ(answer->tokens(), Alone(prompt, 4));
  }
  // Requests of every kind, each of which ends, wherever the n-th look at the clock throws.
  // False: nothing was thrown.
  bool RunWithThrow(int n, const SessionOptions& defaults) {
    SchedulerOptions options = Options();
    options.defaults.compression = defaults.compression;
    MakeThrowing(options);
    std::vector<std::shared_ptr<Answer>> answers;
    answers.push_back(CreateSession("there", MakeRequest(Prompt(30, 1), 0)));
    answers.push_back(CreateSession("replaced", MakeRequest(Prompt(30, 6), 0)));
    RunAll();
    answers.push_back(CreateSession("new", MakeRequest(Prompt(90, 2), 0)));
    Request named = MakeRequest(Prompt(5, 3), 6);
    named.session = "there";
    answers.push_back(Submit(std::move(named)));
    Request replacing = MakeRequest(Prompt(40, 4), 3);
    replacing.replaces = "replaced";
    answers.push_back(Submit(std::move(replacing)));
    Request choices = MakeRequest(Prompt(130, 5), 5);
    choices.n = 2;
    answers.push_back(Submit(std::move(choices)));
    throwing_.Throw(n);
    RunAll();
    const bool thrown = throwing_.has_thrown();
    throwing_.Throw(1 << 30);
    for (const auto& answer : answers) EXPECT_TRUE(answer->done());
    ExpectServing();
    // No name is left claimed: each can be deleted, or is not there.
    int n_deletes = 0;
    for (const char* name : {"there", "new", "replaced"}) {
      scheduler_->DeleteSession(name, [&, name](const auto& outcome) {
        ++n_deletes;
        const auto* error = std::get_if<RequestError>(&outcome);
        EXPECT_TRUE(error == nullptr || error->kind == ErrorKind::kNotFound) << error->message;
        EXPECT_TRUE(error == nullptr || name != std::string("there")) << "it is lost";
      });
    }
    RunAll();
    EXPECT_EQ(n_deletes, 3);
    // Names and sessions agree: what was deleted is not listed.
    int n_lists = 0;
    scheduler_->ListSessions([&](const auto& sessions) {
      ++n_lists;
      EXPECT_TRUE(sessions.empty());
    });
    RunAll();
    EXPECT_EQ(n_lists, 1);
    return thrown;
  }

  ThrowingClock throwing_;
};

TEST_F(SchedulerExceptionsTest, AllRequestsEndAndTheNextOnesAreServed) {
  int n = 1;
  while (RunWithThrow(n, {})) {
    ASSERT_FALSE(HasFailure()) << "thrown at look " << n;
    ++n;
  }
  EXPECT_GT(n, 20);
}

TEST_F(SchedulerExceptionsTest, SoDoThoseThatEvict) {
  const SessionOptions compressed = Compressed("h2o", 24);
  int n = 1;
  while (RunWithThrow(n, compressed)) {
    ASSERT_FALSE(HasFailure()) << "thrown at look " << n;
    ++n;
  }
  EXPECT_GT(n, 20);
}

// Prompts, decode steps and sessions that leave for their files and come back; then saves, forks, a
// restore and a deletion. Whichever allocation of the scheduler's thread is refused, everybody
// hears how their request ended, no memory and no name stays taken, and no session is lost or
// changed. Names are longer than what a string holds without an allocation.
class RefusedAllocationTest : public SchedulerExceptionsTest {
 protected:
  static constexpr int kSessions = 3, kAnswer = 4;  // tokens
  static std::string Old(int i) { return "conversation-number-" + std::to_string(i); }
  static std::vector<TokenId> Question(int i) { return Prompt(5, 10 + i); }
  std::shared_ptr<Answer> Ask(const std::string& session, int question, int64_t max_tokens) {
    Request request = MakeRequest(Question(question), max_tokens);
    request.session = session;
    return Submit(std::move(request));
  }

  // A receiver that counts; `is_done`: whether it heard of no error.
  auto Ends(bool* is_done = nullptr) {
    ++n_wanted_;
    return [this, is_done](const auto& outcome) {
      ++n_ended_;
      if constexpr (requires { std::holds_alternative<RequestError>(outcome); }) {
        if (is_done != nullptr) *is_done = !std::holds_alternative<RequestError>(outcome);
      }
    };
  }

  // False: there were fewer than n in the phase: 0, requests; 1, session calls.
  bool RunWithRefused(int phase, int64_t n) {
    Open();
    refused_ = false;
    n_wanted_ = n_ended_ = 0;
    const auto run = [&](int now) {
      winnow::testing::RefuseAllocation(now == phase ? n : 0);
      RunAll();
      refused_ = refused_ || winnow::testing::WasAllocationRefused();
      winnow::testing::RefuseAllocation(0);
    };
    std::vector<std::shared_ptr<Answer>> answers;
    answers.reserve(kSessions + 2);
    for (int i = 0; i < kSessions; ++i) answers.push_back(Ask(Old(i), i, kAnswer));
    answers.push_back(Submit(MakeRequest(Prompt(60, 20), 4)));
    Request choices = MakeRequest(Prompt(30, 21), 3);
    choices.n = 2;
    answers.push_back(Submit(std::move(choices)));
    scheduler_->CreateSession("a-session-that-is-new", MakeRequest(Prompt(50, 22), 0), Ends());
    run(0);
    bool is_forked = false, is_restored = false;
    scheduler_->SaveSession(Old(0), "a-copy-of-number-0", Ends());
    scheduler_->ForkSession(Old(1), "a-fork-of-number-1", Ends(&is_forked));
    scheduler_->RestoreSession("what-was-there-before", "a-saved-conversation", Ends(&is_restored));
    scheduler_->KeptPositions(Old(2), true, Ends());
    scheduler_->ReadTokens("a-saved-conversation", Ends());
    scheduler_->DeleteSession("a-session-that-is-new", Ends());
    scheduler_->ListSessions(Ends());
    run(1);
    for (const auto& answer : answers) EXPECT_TRUE(answer->done());
    EXPECT_EQ(n_ended_, n_wanted_);
    ExpectNothingTaken();
    for (int i = 0; i < kSessions; ++i) ExpectText(Old(i), i, *answers[static_cast<size_t>(i)]);
    if (is_forked) ExpectText("a-fork-of-number-1", 1, *answers[1]);
    if (is_restored) {
      EXPECT_EQ(Continue("what-was-there-before", 0), Alone(SavedText(), 2));
    }
    scheduler_->Drain();
    return refused_;
  }
  void TryAll(int phase) {
    if (!winnow::testing::kCountsAllocations)
      GTEST_SKIP() << "skipped: not this program's operator new";
    int n_runs = 0;
    // A sample: all of them take minutes, and later ones repeat what earlier ones did.
    for (int64_t n = 1; RunWithRefused(phase, n); n += 1 + n / 20) {
      ASSERT_FALSE(HasFailure()) << "allocation " << n;
      ++n_runs;
    }
    EXPECT_GT(n_runs, 50);
  }

 private:
  // With the sessions Old, of which one at a time must leave for the others.
  void Open() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    SchedulerOptions options = WithFolder();
    options.max_running = 4;
    const auto bytes = PlanSequence(*Session::Make(*engine_, options.defaults).value(), 60, 10);
    options.memory_limit_bytes =
        ModelBytes(*engine_) +
        StepBufferBytes(*engine_, options.max_running, options.defaults.row_block) +
        3 * (bytes->steady + bytes->prefill);
    Make(options);
    Create("a-saved-conversation", Prompt(35, 30));
    scheduler_->SaveSession("a-saved-conversation", "a-saved-conversation", Ends());
    RunAll();
    for (int i = 0; i < kSessions; ++i) Create(Old(i), Prompt(40 + i, i));
  }
  void ExpectNothingTaken() const {
    const SchedulerState state = scheduler_->state();
    EXPECT_EQ(state.n_running + state.n_waiting, 0);
    EXPECT_EQ(state.reserved_bytes, state.live_bytes);
    EXPECT_LE(state.fixed_bytes + state.reserved_bytes, state.limit_bytes);
  }
  std::vector<TokenId> Continue(const std::string& session, int question) {
    const auto again = Ask(session, question, 2);
    RunAll();
    EXPECT_FALSE(again->error) << session << ": " << again->error->message;
    return again->tokens();
  }
  static std::vector<TokenId> SavedText() {
    std::vector<TokenId> text = Prompt(35, 30);
    for (const TokenId token : Question(0)) text.push_back(token);
    return text;
  }
  // The session holds the i-th text, and the first answer unless that failed. Where the receiver
  // was refused memory, it does not know the answer.
  void ExpectText(const std::string& session, int i, Answer& first) {
    std::vector<TokenId> text = Prompt(40 + i, i);
    const auto add = [&](const std::vector<TokenId>& more) {
      text.insert(text.end(), more.begin(), more.end());
    };
    if (!first.error) {
      add(Question(i));
      add(first.tokens());
    }
    add(Question(i));
    const std::vector<TokenId> answer = Continue(session, i);
    const bool is_known = first.error || std::ssize(first.tokens()) == kAnswer;
    if (!is_known) return;
    EXPECT_EQ(answer, Alone(text, 2)) << session;
  }

  bool refused_ = false;
  int n_wanted_ = 0, n_ended_ = 0;
};

TEST_F(RefusedAllocationTest, OfRequestsEndsThemAndLosesNothing) { TryAll(0); }

TEST_F(RefusedAllocationTest, OfSessionCallsEndsThemAndLosesNothing) { TryAll(1); }

TEST_F(SchedulerExceptionsTest, FilesAreReadForTheNextRequests) {
  SchedulerOptions options = WithFolder();
  MakeThrowing(options);
  CreateSession("saved", MakeRequest(Prompt(30, 1), 0));
  RunAll();
  scheduler_->Drain();
  std::filesystem::copy_file(folder_ + "/saved.session", folder_ + "/other.session");
  std::vector<TokenId> text = Prompt(30, 1);
  for (const TokenId token : Prompt(5, 3)) text.push_back(token);
  const auto ask = [&](const char* name) {
    Request named = MakeRequest(Prompt(5, 3), 3);
    named.session = name;
    return Submit(std::move(named));
  };
  bool thrown = true;
  for (int n = 1; thrown; ++n) {
    MakeThrowing(options);
    const auto asked = ask("saved");
    int n_forked = 0;
    scheduler_->ForkSession("other", "fork", [&](const auto&) { ++n_forked; });
    throwing_.Throw(n);
    RunAll();
    thrown = throwing_.has_thrown();
    throwing_.Throw(1 << 30);
    EXPECT_TRUE(asked->done());
    EXPECT_EQ(n_forked, 1);
    const auto answer = ask("other");
    RunAll();
    ASSERT_FALSE(answer->error) << answer->error->message;
    EXPECT_EQ(answer->tokens(), Alone(text, 3));
    ASSERT_FALSE(HasFailure()) << "thrown at look " << n;
    std::filesystem::remove(folder_ + "/fork.session");
  }
}

TEST_F(SchedulerExceptionsTest, AStepThatThrowsLeavesSessionsAsTheyWere) {
  bool throws = false;
  SchedulerOptions options = Options();
  options.defaults.on_projections = [&throws](const attention::Projections&) {
    if (throws) throw std::bad_alloc();
  };
  Make(options);
  const auto document = Prompt(30, 1);
  CreateSession("there", MakeRequest(document, 0));
  RunAll();
  const auto ask = [&] {
    Request named = MakeRequest(Prompt(5, 3), 6);
    named.session = "there";
    return Submit(std::move(named));
  };
  // In the prompt, and in a decode step.
  for (const size_t n_tokens : {0, 2}) {
    const auto failed = ask();
    if (n_tokens > 0) RunUntil([&] { return failed->tokens().size() >= n_tokens; });
    throws = true;
    RunAll();
    throws = false;
    ASSERT_TRUE(failed->error.has_value());
    EXPECT_EQ(failed->error->kind, ErrorKind::kInternal);
  }
  // A prompt that the session holds: it reads the last token again, for its logits.
  Request whole = MakeRequest(document, 3);
  whole.session = "there";
  throws = true;
  const auto failed = Submit(std::move(whole));
  RunAll();
  throws = false;
  EXPECT_TRUE(failed->error.has_value());
  const auto answer = ask();
  RunAll();
  std::vector<TokenId> text = document;
  for (const TokenId token : Prompt(5, 3)) text.push_back(token);
  ASSERT_FALSE(answer->error) << answer->error->message;
  EXPECT_EQ(answer->n_prompt, 35);
  EXPECT_EQ(answer->tokens(), Alone(text, 6));
}

TEST_F(SchedulerExceptionsTest, AReceiverThatThrowsEndsItsRequestOnly) {
  Make(Options());
  Request throwing = MakeRequest(Prompt(20, 1), 50);
  int n_events = 0;
  throwing.on_event = [&](const Event&) {
    ++n_events;
    throw std::bad_alloc();
  };
  scheduler_->Submit(std::move(throwing));
  const auto prompt = Prompt(30, 2);
  const auto other = Submit(MakeRequest(prompt, 8));
  RunAll();
  EXPECT_EQ(other->tokens(), Alone(prompt, 8));
  EXPECT_LT(n_events, 10);
  EXPECT_EQ(scheduler_->state().n_cancelled, 1);
}

}  // namespace
}  // namespace winnow::runtime
