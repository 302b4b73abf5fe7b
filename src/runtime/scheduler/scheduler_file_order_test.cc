// Several operations on one file, queued while the disk is busy: nothing is mixed up and nothing is
// lost.
#include <memory>
#include <utility>

#include "runtime/testing/scheduler_files_run.h"

namespace winnow::runtime {
namespace {

class SchedulerFileOrderTest : public testing::SchedulerFilesTest {
 protected:
  // Holds the file tasks that come from now on.
  void HoldDisk() { disk_ = std::make_unique<testing::SlowDisk>(); }
};

// The file changes between the request and the read.
TEST_F(SchedulerFileOrderTest, ASessionAndItsDocumentAreOfOneFile) {
  const auto expected = AloneAfter(Prompt(20, 1), Prompt(9, 2), 6, {});
  MakeSlow();
  disk_->Free();
  Request document = MakeRequest(Prompt(60, 1), 0);
  document.outline = {.n_document = 60};
  auto long_made =
      Begin([&](auto done) { scheduler_->CreateSession("long", std::move(document), done); });
  ASSERT_EQ(End(long_made), "");
  ASSERT_FALSE(End(BeginAnswer("long", 9, 6)).empty());  // the session has not read its last token
  auto short_made = BeginCreate("short", 20);
  ASSERT_EQ(End(short_made), "");
  auto saved = BeginSave("long", "file");
  ASSERT_EQ(End(saved), "");

  HoldDisk();
  saved = BeginSave("short", "file");
  auto restored = BeginRestore("a", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(restored), "");
  const auto kept = Kept("a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens, Prompt(20, 1));
  EXPECT_EQ(kept->n_document, 0);
  EXPECT_EQ(End(BeginAnswer("a", 9, 6)), expected);

  // A session that takes more bytes than were reserved for it is not read.
  HoldDisk();
  saved = BeginSave("long", "file");
  restored = BeginRestore("b", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  WaitForCommands();
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(restored), "session file: its file has changed; try again");
  EXPECT_FALSE(Kept("b"));
  restored = BeginRestore("b", "file");
  EXPECT_EQ(End(restored), "");
  const auto whole = Kept("b");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->n_document, 60);
}

// A client that asks for more file work than the disk can do does not keep other clients' files
// waiting.
TEST_F(SchedulerFileOrderTest, AQueuedSaveIsNotQueuedAgain) {
  MakeSlow(/*limit_bytes=*/0, /*max_waiting=*/4);
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto again = BeginSave("a", "file");
  EXPECT_EQ(End(again), "session a is being saved to file already");
  again = BeginSave("a", "file");
  EXPECT_EQ(EndKind(again), ErrorKind::kBusy);
  ASSERT_FALSE(End(BeginAnswer("a", 9, 6)).empty());
  auto later = BeginSave("a", "file");  // the session is longer now
  auto other = BeginSave("a", "other");
  auto third = BeginSave("a", "third");
  auto fifth = BeginSave("a", "fifth");
  EXPECT_EQ(EndKind(fifth), ErrorKind::kQueueFull);
  auto restored = BeginRestore("b", "file");
  EXPECT_EQ(EndKind(restored), ErrorKind::kQueueFull);
  auto forked = Begin([&](auto done) { scheduler_->ForkSession("elsewhere", "copy", done); });
  EXPECT_EQ(EndKind(forked), ErrorKind::kQueueFull);
  EXPECT_EQ(KeptProblem("elsewhere"), ErrorKind::kQueueFull);
  EXPECT_EQ(KeptProblem("a"), std::nullopt) << "no file is read for it";
  disk_->Free();
  for (Pending* pending : {&saved, &later, &other, &third}) EXPECT_EQ(End(*pending), "");
  EXPECT_EQ(TokensInFile("file"), 60 + 9 + 5);
  again = BeginSave("a", "file");
  EXPECT_EQ(End(again), "");
}

TEST_F(SchedulerFileOrderTest, TheLastSaveIsTheOneThatStays) {
  MakeSlow();
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  made = BeginCreate("b", 20);
  ASSERT_EQ(End(made), "");
  auto first = BeginSave("a", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto second = BeginSave("b", "file");
  auto third = BeginSave("a", "file");  // the first is being written, but will be overwritten
  WaitForCommands();
  disk_->Free();
  for (Pending* pending : {&first, &second, &third}) EXPECT_EQ(End(*pending), "");
  EXPECT_EQ(TokensInFile("file"), 60);
}

// A session is not evicted while its file is in use: it would be written in between.
class SchedulerEvictionOrderTest : public SchedulerFileOrderTest {
 protected:
  // Sessions "a" of 60 tokens and "b" of 30, in memory for n_sessions sequences of 90 tokens.
  void MakeSessions(int n_sessions) {
    const SequenceBytes plan = PlanSequence(*Session::Make(*engine_, {}).value(), 80, 10).value();
    MakeSlow(n_sessions * plan.steady + plan.prefill);
    disk_->Free();
    auto a = BeginCreate("a", 60);
    ASSERT_EQ(End(a), "");
    auto b = BeginCreate("b", 30);
    ASSERT_EQ(End(b), "");
  }
  // A new session needs the memory of the others while the disk is busy.
  void NeedMemory() {
    ASSERT_TRUE(disk_->WaitUntilBusy());
    // It shares no prefix with them.
    Request document = MakeRequest(Prompt(100, 3), 0);
    auto other =
        Begin([&](auto done) { scheduler_->CreateSession("other", std::move(document), done); });
    for (int round = 0; round < 3; ++round) WaitForCommands();
    disk_->Free();
    EXPECT_EQ(End(other), "");
  }
};

TEST_F(SchedulerEvictionOrderTest, AnOldSaveDoesNotReplaceALaterSession) {
  ASSERT_NO_FATAL_FAILURE(MakeSessions(2));
  auto deleted = BeginDelete("b");
  ASSERT_EQ(End(deleted), "");
  HoldDisk();
  auto saved = BeginSave("a", "a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  ASSERT_FALSE(End(BeginAnswer("a", 9, 6)).empty());  // on a copy, which takes its place
  ASSERT_NO_FATAL_FAILURE(NeedMemory());
  EXPECT_EQ(End(saved), "");
  const auto kept = Kept("a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens.size(), 60u + 9 + 5);
}

TEST_F(SchedulerEvictionOrderTest, ASaveUnderTheNameOfAnotherDoesNotReplaceIt) {
  ASSERT_NO_FATAL_FAILURE(MakeSessions(2));
  auto refused = BeginSave("b", "a");
  EXPECT_EQ(EndKind(refused), ErrorKind::kBusy);
  const auto kept = Kept("a");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens.size(), 60u);
}

TEST_F(SchedulerEvictionOrderTest, AFileIsReadAsItWasWhenAskedFor) {
  ASSERT_NO_FATAL_FAILURE(MakeSessions(3));
  for (const char* id : {"a", "b"}) {
    auto saved = BeginSave(id, id);
    ASSERT_EQ(End(saved), "");
  }
  auto other = BeginRestore("a", "b");  // "a" now differs from its file
  ASSERT_EQ(End(other), "");
  HoldDisk();
  auto restored = BeginRestore("b", "a");
  ASSERT_NO_FATAL_FAILURE(NeedMemory());
  EXPECT_EQ(End(restored), "");
  const auto kept = Kept("b");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens.size(), 60u);
}

// The session with the file's name is longer by now, and would be the first to be evicted.
TEST_F(SchedulerEvictionOrderTest, RoomForAFileIsNotMadeByWritingIt) {
  ASSERT_NO_FATAL_FAILURE(MakeSessions(2));
  auto saved = BeginSave("a", "a");
  ASSERT_EQ(End(saved), "");
  ASSERT_FALSE(End(BeginAnswer("a", 9, 6)).empty());
  ASSERT_FALSE(End(BeginAnswer("b", 9, 6)).empty());
  auto filler = BeginCreate("c", 40);
  ASSERT_EQ(End(filler), "");
  auto restored = BeginRestore("b", "a");
  EXPECT_EQ(End(restored), "");
  const auto kept = Kept("b");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->tokens.size(), 60u);
}

}  // namespace
}  // namespace winnow::runtime
