// Sessions are evicted from memory while other requests go on.
#include <algorithm>
#include <atomic>
#include <filesystem>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_files_run.h"

namespace winnow::runtime {
namespace {

class SchedulerEvictionsTest : public testing::SchedulerFilesTest {
 protected:
  // Sessions "a" and "b" of 80 tokens, in memory with room for three of them; the disk is busy.
  void MakeFull() {
    const SequenceBytes plan = PlanSequence(*Session::Make(*engine_, {}).value(), 80, 20).value();
    MakeSlow(3 * plan.steady + plan.prefill);
    for (const char* id : {"a", "b"}) {
      auto made = BeginCreate(id, 80);
      ASSERT_EQ(End(made), "");
    }
  }
  // The same, in memory without room for a third.
  void MakeWithoutSpareMemory() {
    const auto session = Session::Make(*engine_, {}).value();
    const SequenceBytes plan = PlanSequence(*session, 80, 0).value();
    ASSERT_TRUE(session->Prefill(Prompt(80, 1)).value());
    const int64_t idle = IdleBytes(*session);
    ASSERT_LT(plan.steady + plan.prefill, 2 * idle);
    MakeSlow(idle + plan.steady + plan.prefill);
    for (const char* id : {"a", "b"}) {
      auto made = BeginCreate(id, 80);
      ASSERT_EQ(End(made), "");
    }
  }
  // Creates a session of another text.
  Pending BeginOther(const std::string& id, int n = 100) {
    return Begin(
        [&](auto done) { scheduler_->CreateSession(id, MakeRequest(Prompt(n, 5), 0), done); });
  }
  Pending BeginFork(const std::string& from, const std::string& to) {
    return Begin([&](auto done) { scheduler_->ForkSession(from, to, done); });
  }
  static bool Waits(const Pending& pending) {
    return pending.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }
  std::string InMemory() {
    std::promise<std::string> names;
    scheduler_->ListSessions([&](const std::vector<SessionInfo>& list) {
      std::string all;
      for (const SessionInfo& info : list) all += info.on_disk ? "" : info.id;
      names.set_value(all);
    });
    return names.get_future().get();
  }
};

TEST_F(SchedulerEvictionsTest, NobodyWaitsWhileASessionIsWritten) {
  const auto expected = Alone(Prompt(40, 2), 30);
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  auto other = BeginOther("other", 200);
  ASSERT_TRUE(disk_->WaitUntilBusy());
  EXPECT_EQ(End(BeginAnswer("", 40, 30)), expected);
  EXPECT_TRUE(Waits(other));
  EXPECT_EQ(TokensInFile("a"), -1);
  disk_->Free();
  EXPECT_EQ(End(other), "");
  EXPECT_EQ(TokensInFile("a"), 80);
  EXPECT_EQ(InMemory().find('a'), std::string::npos);
  // The session is read again.
  EXPECT_EQ(End(BeginAnswer("a", 9, 6)), AloneAfter(Prompt(80, 1), Prompt(9, 2), 6, {}));
}

TEST_F(SchedulerEvictionsTest, CopiesAndFilesWaitForRoom) {
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  disk_->Free();
  for (const char* id : {"c", "d", "e"}) {
    auto forked = BeginFork("a", id);
    EXPECT_EQ(End(forked), "") << id;
  }
  auto restored = BeginRestore("f", "b");
  EXPECT_EQ(End(restored), "");
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    const auto kept = Kept(id);
    ASSERT_TRUE(kept) << id;
    EXPECT_EQ(kept->tokens, Prompt(80, 1)) << id;
    const SchedulerState state = scheduler_->state();
    EXPECT_LE(state.fixed_bytes + state.reserved_bytes, state.limit_bytes);
  }
}

// A response of a session that is being evicted is not lost, and neither is the session that
// replaces it.
TEST_F(SchedulerEvictionsTest, ASessionThatLeavesIsAskedReplacedOrDeleted) {
  const auto expected = AloneAfter(Prompt(80, 1), Prompt(9, 2), 6, {});
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  auto other = BeginOther("other", 200);
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto asked = BeginAnswer("a", 9, 6);
  auto deleted = BeginDelete("b");
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(std::move(asked)), expected);
  EXPECT_EQ(End(deleted), "");
  EXPECT_EQ(End(other), "");
  EXPECT_EQ(TokensInFile("b"), -1);
  EXPECT_EQ(InMemory().find('b'), std::string::npos);
  const auto kept = Kept("a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens.size(), 80u + 9 + 5);
}

// The bytes of an evicted session are free once it was written, deleted or not.
TEST_F(SchedulerEvictionsTest, ADeletedSessionThatLeavesMakesRoom) {
  ASSERT_NO_FATAL_FAILURE(MakeWithoutSpareMemory());
  auto first = BeginFork("b", "c");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto deleted = BeginDelete("a");
  WaitForCommands();
  EXPECT_TRUE(Waits(first));
  disk_->Free();
  EXPECT_EQ(End(deleted), "");
  EXPECT_EQ(End(first), "");
}

// A session can be saved while it is being evicted, and is on disk afterwards.
TEST_F(SchedulerEvictionsTest, ASessionThatLeavesIsSaved) {
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  auto other = BeginOther("other", 200);
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto saved = BeginSave("a", "a");
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(other), "");
  EXPECT_EQ(TokensInFile("a"), 80);
}

// A file that waits for memory is read as it was when the request came in.
TEST_F(SchedulerEvictionsTest, NothingElseIsDoneWithAFileThatIsToBeRead) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("file", Prompt(80, 3))), "");
  ASSERT_EQ(Problem(Save("file", "file")), "");
  scheduler_.reset();
  ASSERT_NO_FATAL_FAILURE(MakeWithoutSpareMemory());
  auto restored = BeginRestore("x", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  WaitForCommands();
  ASSERT_TRUE(Waits(restored));
  auto saved = BeginSave("b", "file");
  EXPECT_EQ(EndKind(saved), ErrorKind::kBusy);
  auto deleted = BeginDelete("file");
  EXPECT_EQ(EndKind(deleted), ErrorKind::kBusy);
  disk_->Free();
  EXPECT_EQ(End(restored), "");
  const auto kept = Kept("x");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens, Prompt(80, 3));
  auto again = BeginDelete("file");
  EXPECT_EQ(End(again), "");
}

// While a response is running, two requests that wait do not evict each other's sessions again and
// again.
TEST_F(SchedulerEvictionsTest, TwoThatWaitDoNotReadByTurns) {
  Make(WithFolder());
  for (const char* id : {"a", "b"}) {
    ASSERT_EQ(Problem(Create(id, Prompt(100, 1))), "");
    ASSERT_EQ(Problem(Save(id, id)), "");
  }
  scheduler_.reset();
  const auto plan = [&](int64_t n_prompt, int64_t n) {
    return PlanSequence(*Session::Make(*engine_, {}).value(), n_prompt, n).value();
  };
  SchedulerOptions options = WithFolder();
  options.max_running = 3;
  int n_files = 0;
  options.on_file_work = [&] { ++n_files; };
  // One of the two sessions fits beside the response as it is, and neither with 200 tokens more.
  options.memory_limit_bytes = ModelBytes(*engine_) +
                               StepBufferBytes(*engine_, 3, options.defaults.row_block) +
                               plan(60, 100).steady + plan(130, 10).steady + 60'000;
  Make(options);
  const auto long_answer = Submit(MakeRequest(Prompt(60, 2), 100));
  RunUntil([&] { return long_answer->tokens().size() > 2; });
  std::vector<std::shared_ptr<testing::Answer>> asked;
  for (const char* id : {"a", "b"}) {
    Request request = MakeRequest(Prompt(200, 4), 5);
    request.session = id;
    asked.push_back(Submit(std::move(request)));
  }
  RunUntil([&] { return long_answer->done(); });
  EXPECT_LE(n_files, 4);
  RunAll();
  for (const auto& answer : asked) {
    EXPECT_TRUE(answer->done());
  }
}

// If nothing can be written, requests that need the memory get an error, and the disk is not tried
// again and again.
TEST_F(SchedulerEvictionsTest, WhatCannotBeWrittenStays) {
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  disk_->Free();
  for (const char* id : {"a", "b"}) {
    std::filesystem::create_directory(folder_ + "/" + id + ".session");
  }
  auto other = BeginOther("other", 200);
  EXPECT_EQ(EndKind(other), ErrorKind::kTooLarge);
  auto forked = BeginFork("a", "c");
  EXPECT_EQ(EndKind(forked).value_or(ErrorKind::kQueueFull), ErrorKind::kQueueFull);
  EXPECT_EQ(End(BeginAnswer("a", 9, 6)), AloneAfter(Prompt(80, 1), Prompt(9, 2), 6, {}));
}

// More sessions than fit in memory, used one after another.
TEST_F(SchedulerEvictionsTest, ManySessionsAreAskedInLittleMemory) {
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  disk_->Free();
  const std::vector<TokenId> expected = AloneAfter(Prompt(80, 1), Prompt(9, 2), 6, {});
  std::vector<std::string> ids = {"a", "b"};
  for (const char* id : {"c", "d", "e", "f"}) {
    auto made = BeginCreate(id, 80);
    ASSERT_EQ(End(made), "");
    ids.emplace_back(id);
  }
  std::vector<std::future<std::vector<TokenId>>> answers;
  answers.reserve(ids.size());
  for (const std::string& id : ids) answers.push_back(BeginAnswer(id, 9, 6));
  for (auto& answer : answers) EXPECT_EQ(End(std::move(answer)), expected);
}

TEST_F(SchedulerEvictionsTest, StoppingAnswersThoseWhoWait) {
  ASSERT_NO_FATAL_FAILURE(MakeFull());
  auto other = BeginOther("other", 200);
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto first = BeginFork("b", "c");
  auto second = BeginFork("b", "d");
  WaitForCommands();
  StopWhileBusy();
  for (Pending* pending : {&other, &first, &second}) EXPECT_TRUE(IsDone(*pending));
  EXPECT_EQ(TokensInFile("a"), 80);
}

}  // namespace
}  // namespace winnow::runtime
