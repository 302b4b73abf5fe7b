// Requests and sessions that compete for memory.
#include <algorithm>
#include <filesystem>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/store/session_file.h"
#include "runtime/store/session_names.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

class SchedulerFullMemoryTest : public testing::SchedulerSessionsTest {
 protected:
  // Room for n_bytes of sequences and sessions.
  SchedulerOptions WithRoom(int64_t n_bytes, bool has_folder) {
    SchedulerOptions options = has_folder ? WithFolder() : Options();
    options.max_running = 3;
    options.memory_limit_bytes =
        ModelBytes(*engine_) + StepBufferBytes(*engine_, 3, options.defaults.row_block) + n_bytes;
    return options;
  }
  SequenceBytes Plan(int64_t n_prompt, int64_t n_generate) {
    return PlanSequence(*Session::Make(*engine_, {}).value(), n_prompt, n_generate).value();
  }
  int64_t BytesOfIdle(int n_tokens) {
    const auto session = Session::Make(*engine_, {}).value();
    EXPECT_TRUE(session->Prefill(Prompt(n_tokens, 1)).value());
    return IdleBytes(*session);
  }
  std::shared_ptr<testing::Answer> Ask(const std::string& session, int64_t max_tokens) {
    Request request = MakeRequest(Prompt(5, 3), max_tokens);
    if (!session.empty()) request.session = session;
    return Submit(std::move(request));
  }
  std::string InMemory() {
    std::string names;
    for (const SessionInfo& info : List()) names += info.on_disk ? "" : info.id;
    return names;
  }
  int64_t TokensInFile(const std::string& name) const {
    const auto info = ReadSessionInfo(folder_ + "/" + name + ".session");
    return info ? info->n_tokens : -1;
  }
};

// Both sessions fit as they are, but each request fits only without the other session.
TEST_F(SchedulerFullMemoryTest, TwoRequestsDoNotPutEachOthersSessionsAwayForEver) {
  const int64_t idle = BytesOfIdle(60);
  const SequenceBytes plan = Plan(65, 150);
  const int64_t needed = plan.steady + plan.prefill;
  ASSERT_GT(needed, 2 * idle);
  SchedulerOptions options = WithRoom(needed + idle / 2, /*has_folder=*/true);
  int n_files = 0;
  options.on_file_work = [&] { ++n_files; };
  Make(options);
  for (const char* id : {"a", "b"}) ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  ASSERT_EQ(InMemory(), "ab");
  std::vector<std::shared_ptr<testing::Answer>> asked;
  for (const char* id : {"a", "b"}) asked.push_back(Ask(id, 150));
  for (int round = 0; round < 2000 && !asked[1]->done(); ++round) scheduler_->Round();
  const auto expected = AloneAfter(Prompt(60, 1), Prompt(5, 3), 150, {});
  for (const auto& answer : asked) {
    ASSERT_TRUE(answer->done());
    EXPECT_EQ(answer->tokens(), expected);
  }
  EXPECT_LE(n_files, 4);
}

// Without a folder no session is lost: the first request waits until the second, whose session it
// must not evict, is done.
TEST_F(SchedulerFullMemoryTest, ARequestWaitsForASessionThatAnotherRequestIsToUse) {
  const int64_t idle = BytesOfIdle(100);
  const SequenceBytes large = Plan(5, 200), small = Plan(105, 3);
  const int64_t room = large.steady + large.prefill + idle / 2;
  ASSERT_GT(room, small.steady + small.prefill);
  SchedulerOptions options = WithRoom(room, /*has_folder=*/false);
  options.max_overtakes = 0;  // the second may start first only because nothing runs
  Make(options);
  ASSERT_EQ(Problem(Create("s", Prompt(100, 1))), "");
  const auto first = Ask("", 200);
  const auto second = Ask("s", 3);
  RunAll();
  EXPECT_FALSE(second->error) << second->error->message;
  EXPECT_FALSE(first->error) << first->error->message;
  EXPECT_EQ(first->tokens(), Alone(Prompt(5, 3), 200));
}

TEST_F(SchedulerFullMemoryTest, WhatCanNeverFitIsSaidWithBothNumbers) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("long", Prompt(200, 1))), "");
  ASSERT_EQ(Problem(Save("long", "long")), "");
  const SchedulerOptions options = WithRoom(BytesOfIdle(200) / 2, /*has_folder=*/true);
  Make(options);
  const Outcome restored = Restore("x", "long");
  ASSERT_TRUE(std::holds_alternative<RequestError>(restored));
  EXPECT_EQ(std::get<RequestError>(restored).kind, ErrorKind::kTooLarge);
  EXPECT_NE(Problem(restored).find(std::to_string(options.memory_limit_bytes)), std::string::npos)
      << Problem(restored);
}

// A copy that cannot fit beside its original.
TEST_F(SchedulerFullMemoryTest, ACopyThatCanNeverFitIsTooLarge) {
  const SequenceBytes plan = Plan(100, 0);
  const int64_t idle = BytesOfIdle(100);
  const int64_t room = plan.steady + plan.prefill;
  ASSERT_LT(room, 2 * idle);
  Make(WithRoom(room, /*has_folder=*/true));
  ASSERT_EQ(Problem(Create("a", Prompt(100, 1))), "");
  const Outcome forked = Fork("a", "b");
  ASSERT_TRUE(std::holds_alternative<RequestError>(forked));
  EXPECT_EQ(std::get<RequestError>(forked).kind, ErrorKind::kTooLarge) << Problem(forked);
}

// Two reads that wait for a session to be evicted get an error when it cannot be: neither waits for
// the other.
TEST_F(SchedulerFullMemoryTest, FilesThatWaitForRoomDoNotWaitForEachOther) {
  Make(WithFolder());
  for (const char* id : {"x", "y"}) ASSERT_EQ(Problem(Create(id, Prompt(80, 1))), "");
  scheduler_->Drain();
  const SequenceBytes plan = Plan(100, 0);
  Make(WithRoom(plan.steady + plan.prefill, /*has_folder=*/true));
  ASSERT_EQ(Problem(Create("a", Prompt(100, 3))), "");
  std::filesystem::create_directory(folder_ + "/a.session");  // so that it cannot be written
  std::vector<Outcome> outcomes;
  for (const char* file : {"x", "y"}) {
    scheduler_->RestoreSession(std::string("of-") + file, file,
                               [&](Outcome outcome) { outcomes.push_back(std::move(outcome)); });
  }
  for (int round = 0; round < 100; ++round) scheduler_->Round();
  ASSERT_EQ(outcomes.size(), 2u);
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(std::holds_alternative<RequestError>(outcome));
    EXPECT_EQ(std::get<RequestError>(outcome).kind, ErrorKind::kQueueFull) << Problem(outcome);
  }
}

// Requests that work on a copy of a session count as use of it.
TEST_F(SchedulerFullMemoryTest, ADocumentThatPromptsBeginWithIsInUse) {
  const int64_t idle = BytesOfIdle(100);
  const SequenceBytes plan = Plan(100, 0);
  Make(WithRoom(plan.steady + plan.prefill + 5 * idle / 2, /*has_folder=*/true));
  for (const auto& [id, seed] : {std::pair("book", 1), std::pair("other", 2)}) {
    ASSERT_EQ(Problem(Create(id, Prompt(100, seed))), "");
    clock_.Advance(1);
  }
  Request question = MakeRequest(Joined(Prompt(100, 1), Prompt(5, 3)), 1);
  question.keep = false;
  const auto answer = Submit(std::move(question));
  RunAll();
  ASSERT_EQ(answer->n_reused, 100);
  ASSERT_EQ(InMemory(), "bookother");
  clock_.Advance(1);
  ASSERT_EQ(Problem(Create("next", Prompt(100, 4))), "");
  ASSERT_EQ(Problem(Create("more", Prompt(100, 5))), "");
  EXPECT_EQ(InMemory().find("other"), std::string::npos);
  EXPECT_NE(InMemory().find("book"), std::string::npos);
}

TEST_F(SchedulerFullMemoryTest, WhatWasNotUsedForLongestLeavesFirst) {
  const int64_t idle = BytesOfIdle(100);
  const SequenceBytes plan = Plan(100, 0);
  Make(WithRoom(plan.steady + plan.prefill + 2 * idle, /*has_folder=*/true));
  ASSERT_EQ(Problem(Create("book", Prompt(100, 1))), "");
  clock_.Advance(1);
  ASSERT_EQ(Problem(Create("other", Prompt(100, 2))), "");
  clock_.Advance(1);
  // Copying it counts as use.
  ASSERT_EQ(Problem(Fork("book", "question")), "");
  clock_.Advance(1);
  ASSERT_EQ(Problem(Delete("question")), "");
  ASSERT_EQ(Problem(Create("next", Prompt(100, 4))), "");
  ASSERT_EQ(Problem(Create("more", Prompt(100, 5))), "");
  EXPECT_EQ(InMemory().find("other"), std::string::npos);
  EXPECT_NE(InMemory().find("book"), std::string::npos);
}

// A file holds what was saved to it last.
TEST_F(SchedulerFullMemoryTest, ASessionThatWasReadFromAFileIsNotWrittenOverALaterOne) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("book", Prompt(100, 1))), "");
  scheduler_->Drain();
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("slot", Prompt(40, 2))), "");
  ASSERT_EQ(Problem(Fork("book", "copy")), "");  // "book" is in memory
  ASSERT_NE(InMemory().find("book"), std::string::npos);
  ASSERT_EQ(Problem(Save("slot", "book")), "");
  EXPECT_EQ(Exercise("book", Prompt(3, 4), 1)->n_reused, 40);
  scheduler_->Drain();
  EXPECT_EQ(TokensInFile("book"), 43);
}

TEST_F(SchedulerFullMemoryTest, NothingIsSavedToTheFileOfASessionThatHasChanged) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("book", Prompt(100, 1))), "");
  ASSERT_EQ(Problem(Create("slot", Prompt(40, 2))), "");
  const Outcome refused = Save("slot", "book");
  ASSERT_TRUE(std::holds_alternative<RequestError>(refused));
  EXPECT_EQ(std::get<RequestError>(refused).kind, ErrorKind::kBusy);
  ASSERT_EQ(Problem(Save("book", "book")), "");
  ASSERT_EQ(Problem(Save("slot", "book")), "");
  scheduler_->Drain();
  EXPECT_EQ(TokensInFile("book"), 40);
}

// Writing a saved session again would undo what another process did to the file.
TEST_F(SchedulerFullMemoryTest, WhatIsSavedIsNotWrittenAgain) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
  ASSERT_EQ(Problem(Create("b", Prompt(60, 2))), "");
  for (const char* id : {"a", "b"}) ASSERT_EQ(Problem(Save(id, id)), "");
  ASSERT_FALSE(Exercise("b", Prompt(5, 3), 2)->error);
  std::filesystem::copy_file(folder_ + "/a.session", folder_ + "/kept");
  std::filesystem::resize_file(folder_ + "/a.session", 100);
  scheduler_->Drain();
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/a.session"), 100u);
  EXPECT_EQ(TokensInFile("b"), 66);
}

TEST_F(SchedulerFullMemoryTest, TheTextOfASavedSessionNeedsNoMemory) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("book", Prompt(100, 1))), "");
  scheduler_->Drain();
  Make(WithRoom(BytesOfIdle(100) / 2, /*has_folder=*/true));
  const auto read = ReadTokens("book");
  ASSERT_TRUE(std::holds_alternative<SessionTokens>(read));
  EXPECT_EQ(std::get<SessionTokens>(read).tokens, Prompt(100, 1));
  EXPECT_EQ(InMemory(), "");
  for (const char* id : {"none", "../book", ""}) {
    const auto refused = ReadTokens(id);
    ASSERT_TRUE(std::holds_alternative<RequestError>(refused)) << id;
    EXPECT_EQ(std::get<RequestError>(refused).kind, ErrorKind::kNotFound) << id;
  }
}

TEST_F(SchedulerFullMemoryTest, OneSessionIsFoundWhereverItIs) {
  Make(WithFolder());
  const auto find = [&](const std::string& id) {
    return Wait([&](auto done) { scheduler_->FindSession(id, done); });
  };
  ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
  EXPECT_FALSE(std::get<SessionInfo>(find("a")).on_disk);
  const auto answer = Ask("a", 20);
  RunUntil([&] { return answer->tokens().size() > 2; });
  EXPECT_TRUE(std::get<SessionInfo>(find("a")).busy);
  RunAll();
  scheduler_->Drain();
  Make(WithFolder());
  EXPECT_EQ(scheduler_->state().n_saved_sessions, 1);
  EXPECT_TRUE(std::get<SessionInfo>(find("a")).on_disk);
  for (const char* id : {"none", "../a", ""}) {
    EXPECT_EQ(std::get<RequestError>(find(id)).kind, ErrorKind::kNotFound) << id;
  }
  ASSERT_EQ(Problem(Delete("a")), "");
  EXPECT_EQ(scheduler_->state().n_saved_sessions, 0);
}

// A session is unchanged if its file cannot be removed.
TEST_F(SchedulerFullMemoryTest, WhatCannotBeDeletedStays) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
  std::filesystem::create_directory(folder_ + "/a.session");
  const Outcome refused = Delete("a");
  ASSERT_TRUE(std::holds_alternative<RequestError>(refused));
  EXPECT_EQ(std::get<RequestError>(refused).kind, ErrorKind::kInternal);
  EXPECT_EQ(Exercise("a", Prompt(5, 2), 2)->n_reused, 60);
}

TEST_F(SchedulerFullMemoryTest, ANameIsFreeWhenItsFileWasRemoved) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
  scheduler_->Drain();
  Make(WithFolder());
  std::filesystem::remove(folder_ + "/a.session");
  const Outcome gone = Delete("a");
  ASSERT_TRUE(std::holds_alternative<RequestError>(gone));
  EXPECT_EQ(std::get<RequestError>(gone).kind, ErrorKind::kNotFound);
  EXPECT_EQ(Problem(Create("a", Prompt(60, 2))), "");
}

TEST(SessionNamesTest, OneInUseIsNotClosed) {
  SessionNames names;
  ASSERT_EQ(names.ClaimNew("a"), SessionNames::Outcome::kClaimed);
  EXPECT_FALSE(names.Close("a"));
  names.Release("a", true);
  EXPECT_TRUE(names.Close("a"));
  EXPECT_EQ(names.ClaimExisting("a"), SessionNames::Outcome::kClosed);
}

}  // namespace
}  // namespace winnow::runtime
