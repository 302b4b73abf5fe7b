// Sessions are read and written while other requests, and requests on those sessions, go on.
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/testing/scheduler_files_run.h"

namespace winnow::runtime {
namespace {

using testing::SchedulerFilesTest;
using testing::SchedulerReadingTest;

// Usually std::bad_alloc.
TEST_F(SchedulerFilesTest, AnExceptionEndsTheCallAlone) {
  SchedulerOptions options = WithFolder();
  bool throws = true;
  options.on_file_work = [&throws] {
    if (throws) throw std::bad_alloc();
  };
  Make(options);
  ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
  const Outcome saved = Save("a", "a");
  EXPECT_EQ(Problem(saved), "internal error: std::bad_alloc");
  EXPECT_EQ(std::get<RequestError>(saved).kind, ErrorKind::kInternal);
  EXPECT_EQ(TokensInFile("a"), -1);
  std::vector<std::string> problems;
  scheduler_->FindSession("a", [&](const Outcome& outcome) {
    problems.push_back(Problem(outcome));
    throw std::bad_alloc();
  });
  RunAll();
  EXPECT_EQ(problems, (std::vector<std::string>{"", "internal error: std::bad_alloc"}));
  throws = false;
  EXPECT_EQ(Problem(Save("a", "a")), "");
  EXPECT_EQ(TokensInFile("a"), 60);
}

TEST_F(SchedulerFilesTest, NobodyWaitsForASave) {
  const auto expected = Alone(Prompt(40, 2), 30);
  MakeSlow();
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  // A whole response, while the disk is held.
  EXPECT_EQ(End(BeginAnswer("", 40, 30)), expected);
  EXPECT_EQ(TokensInFile("a"), -1);
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(TokensInFile("a"), 60);
}

// The file holds the session as it was when the save was requested; two saves under one name are
// written in order.
TEST_F(SchedulerFilesTest, ASessionGoesOnWhileItIsSaved) {
  for (const bool compressed : {false, true}) {
    SCOPED_TRACE(compressed);
    const auto options = compressed ? Compressed("h2o", 24) : SessionOptions{};
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    scheduler_.reset();
    disk_ = std::make_unique<testing::SlowDisk>();
    const auto expected = AloneAfter(Prompt(60, 1), Prompt(9, 2), 6, options);
    MakeSlow();
    auto made = BeginCreate("a", 60, options);
    ASSERT_EQ(End(made), "");
    auto first = BeginSave("a", "a");
    auto other = BeginSave("a", "other");
    ASSERT_TRUE(disk_->WaitUntilBusy());
    WaitForCommands();
    EXPECT_EQ(End(BeginAnswer("a", 9, 6)), expected);
    auto forked = Begin([&](auto done) { scheduler_->ForkSession("a", "b", done); });
    EXPECT_EQ(End(forked), "");
    auto second = BeginSave("a", "a");
    disk_->Free();
    EXPECT_EQ(End(first), "");
    EXPECT_EQ(End(other), "");
    EXPECT_EQ(End(second), "");
    EXPECT_EQ(TokensInFile("a"), 60 + 9 + 5);
    EXPECT_EQ(TokensInFile("other"), 60);
    auto restored = Begin([&](auto done) { scheduler_->RestoreSession("c", "other", done); });
    EXPECT_EQ(End(restored), "");
    EXPECT_EQ(End(BeginAnswer("c", 9, 6)), expected);
  }
}

// A session that is deleted while it is being saved is gone: its file is removed after the write.
TEST_F(SchedulerFilesTest, ADeletedSessionStaysDeleted) {
  MakeSlow();
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "a");
  auto deleted = BeginDelete("a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto refused = BeginSave("a", "b");
  EXPECT_EQ(End(refused), "session a is in use by another request");
  EXPECT_GT(scheduler_->state().reserved_bytes, 0) << "it is still read";
  disk_->Free();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(End(deleted), "");
  EXPECT_EQ(TokensInFile("a"), -1);
  auto again = BeginCreate("a", 30);
  EXPECT_EQ(End(again), "");
  auto last = BeginDelete("a");
  EXPECT_EQ(End(last), "");
  scheduler_->Drain();
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// A copy that does not fit waits until the session is saved.
TEST_F(SchedulerFilesTest, ACopyNeedsRoom) {
  const SequenceBytes plan = PlanSequence(*Session::Make(*engine_, {}).value(), 80, 10).value();
  const auto expected = AloneAfter(Prompt(60, 1), Prompt(9, 2), 6, {});
  MakeSlow(plan.steady + plan.prefill);
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  auto answer = BeginAnswer("a", 9, 6);
  for (int round = 0; round < 3; ++round) {
    WaitForCommands();
    EXPECT_EQ(scheduler_->state().n_running, 0);
  }
  disk_->Free();
  EXPECT_EQ(End(std::move(answer)), expected);
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(TokensInFile("a"), 60);
}

TEST_F(SchedulerReadingTest, NobodyWaitsForAFileToBeRead) {
  const auto alone = Alone(Prompt(40, 2), 30);
  const auto expected = AloneAfter(Prompt(60, 1), Prompt(9, 2), 6, {});
  MakeWithFile();
  auto restored = Begin([&](auto done) { scheduler_->RestoreSession("b", "a", done); });
  auto forked = Begin([&](auto done) { scheduler_->ForkSession("a", "c", done); });
  auto kept = BeginKept("a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  EXPECT_EQ(End(BeginAnswer("", 40, 30)), alone);
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(folder_ + "/a.session"));
  EXPECT_GT(scheduler_->state().reserved_bytes, 2 * file_bytes) << "two are being read";
  disk_->Free();
  EXPECT_EQ(End(restored), "");
  EXPECT_EQ(End(forked), "");
  EXPECT_EQ(kept.get(), 60);
  for (const char* id : {"a", "b", "c"}) EXPECT_EQ(End(BeginAnswer(id, 9, 6)), expected);
}

TEST_F(SchedulerReadingTest, ARequestWaitsForItsSession) {
  const auto alone = Alone(Prompt(40, 2), 30);
  const auto expected = AloneAfter(Prompt(60, 1), Prompt(9, 2), 6, {});
  MakeWithFile();
  auto question = BeginAnswer("a", 9, 6);
  ASSERT_TRUE(disk_->WaitUntilBusy());
  EXPECT_EQ(End(BeginAnswer("", 40, 30)), alone);
  disk_->Free();
  EXPECT_EQ(End(std::move(question)), expected);
}

// A file that cannot be read ends the request with an error, and no memory stays reserved.
TEST_F(SchedulerReadingTest, ADamagedFileIsAnError) {
  MakeWithFile();
  const std::string path = folder_ + "/a.session";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  auto question = BeginAnswer("a", 9, 6);
  auto kept = BeginKept("a");
  disk_->Free();
  EXPECT_EQ(End(std::move(question)), std::vector<TokenId>());
  EXPECT_EQ(kept.get(), -1);
  auto restored = Begin([&](auto done) { scheduler_->RestoreSession("b", "a", done); });
  EXPECT_NE(End(restored).find("damaged"), std::string::npos);
  scheduler_->Drain();
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
}

// Another process has replaced the file by a longer one.
TEST_F(SchedulerReadingTest, AFileThatHasChangedIsToBeAskedForAgain) {
  const auto longer = Session::Make(*engine_, {}).value();
  ASSERT_TRUE(longer->Prefill(Prompt(200, 1)).value());
  ASSERT_TRUE(SaveSession(*longer, folder_ + "/longer").has_value());
  MakeWithFile();
  Request request = MakeRequest(Prompt(9, 2), 6);
  request.session = "a";
  std::promise<ErrorKind> failed;
  request.on_event = [&](const Event& event) {
    if (event.kind == Event::Kind::kFailed) failed.set_value(event.error.kind);
    if (event.kind == Event::Kind::kFinished) failed.set_value(ErrorKind::kInternal);
  };
  ASSERT_TRUE(std::holds_alternative<Ticket>(scheduler_->Submit(std::move(request))));
  auto restored = BeginRestore("b", "a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  WaitForCommands();
  std::filesystem::rename(folder_ + "/longer", folder_ + "/a.session");
  disk_->Free();
  EXPECT_EQ(EndKind(restored), ErrorKind::kBusy);
  EXPECT_EQ(failed.get_future().get(), ErrorKind::kBusy);
  EXPECT_EQ(BeginKept("a").get(), 200);
}

// A session that is deleted while it is being read is gone from memory too.
TEST_F(SchedulerReadingTest, ADeletedSessionIsNotReadAgain) {
  MakeWithFile();
  auto kept = BeginKept("a");
  auto deleted = BeginDelete("a");
  disk_->Free();
  EXPECT_EQ(kept.get(), 60);
  EXPECT_EQ(End(deleted), "");
  EXPECT_EQ(BeginKept("a").get(), -1);
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  auto again = BeginCreate("a", 30);
  EXPECT_EQ(End(again), "");
}

// Requests for sessions that are still to be read or written when the scheduler stops get an error.
TEST_F(SchedulerReadingTest, StoppingAnswersAll) {
  MakeWithFile();
  std::filesystem::copy_file(folder_ + "/a.session", folder_ + "/c.session");
  auto saved = BeginSave("c", "b");
  auto question = BeginAnswer("a", 9, 6);
  auto kept = BeginKept("a");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  WaitForCommands();
  StopWhileBusy();
  EXPECT_EQ(EndKind(saved), ErrorKind::kUnavailable);
  EXPECT_EQ(question.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(kept.wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

TEST_F(SchedulerFilesTest, DrainingWaitsForTheDisk) {
  MakeSlow();
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  std::thread frees([this] {
    while (!scheduler_->state().draining) std::this_thread::yield();
    disk_->Free();
  });
  scheduler_->Drain();
  EXPECT_EQ(saved.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(TokensInFile("file"), 60);
  EXPECT_EQ(TokensInFile("a"), 60) << "sessions in memory are saved too";
  frees.join();
}

// Stop without Drain still writes what is in the queue.
TEST_F(SchedulerFilesTest, StoppingEndsWhatIsBeingSaved) {
  MakeSlow();
  auto made = BeginCreate("a", 60);
  ASSERT_EQ(End(made), "");
  auto saved = BeginSave("a", "file");
  ASSERT_TRUE(disk_->WaitUntilBusy());
  StopWhileBusy();
  EXPECT_EQ(End(saved), "");
  EXPECT_EQ(TokensInFile("file"), 60);
}

}  // namespace
}  // namespace winnow::runtime
