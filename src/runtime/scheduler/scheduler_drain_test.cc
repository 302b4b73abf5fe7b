// Draining: sessions are saved for other processes while the last responses are finished here.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/store/session_file.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

class SchedulerDrainTest : public testing::SchedulerSessionsTest {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name + ".session"; }
  int64_t TokensInFile(const std::string& name) const {
    const auto info = ReadSessionInfo(Path(name));
    return info ? info->n_tokens : -1;
  }
  // Drains while a response of n tokens is running. `look` is called at its last token.
  void DrainBehind(const std::string& session, int64_t n, std::function<void()> look) {
    Request request = MakeRequest(Prompt(5, 2), n);
    request.session = session;
    int64_t n_tokens = 0;
    request.on_event = [&](const Event& event) {
      if (event.kind == Event::Kind::kToken && ++n_tokens == n) look();
    };
    ASSERT_TRUE(std::holds_alternative<Ticket>(scheduler_->Submit(std::move(request))));
    ASSERT_TRUE(scheduler_->Round());
    scheduler_->Drain();
    EXPECT_EQ(n_tokens, n);
  }
};

TEST_F(SchedulerDrainTest, IdleSessionsAreSavedBeforeTheLastAnswerEnds) {
  Make(WithFolder());
  for (const char* id : {"idle", "short", "long"}) {
    ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  }
  Request request = MakeRequest(Prompt(9, 2), 4);
  request.session = "short";
  const auto answer = Submit(std::move(request));
  DrainBehind("long", 30, [&] {
    EXPECT_TRUE(answer->done());
    EXPECT_EQ(TokensInFile("idle"), 60);
    EXPECT_EQ(TokensInFile("short"), 60 + 9 + 3) << "saved when its answer ended";
    EXPECT_EQ(TokensInFile("long"), -1);
  });
  EXPECT_EQ(TokensInFile("long"), 60 + 5 + 29);
}

// The other process may have continued the session and saved it meanwhile.
TEST_F(SchedulerDrainTest, ASavedSessionIsAnotherProcessesFromThenOn) {
  const auto longer = Session::Make(*engine_, {}).value();
  ASSERT_TRUE(longer->Prefill(Prompt(200, 1)).value());
  Make(WithFolder());
  for (const char* id : {"idle", "long"}) ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  DrainBehind("long", 30, [&] {
    ASSERT_EQ(TokensInFile("idle"), 60);
    ASSERT_TRUE(SaveSession(*longer, Path("idle")).has_value());
  });
  EXPECT_EQ(TokensInFile("idle"), 200);
}

// A request on a compressed session works on a copy; the session as it was before is not saved.
TEST_F(SchedulerDrainTest, ARunningCopyIsSavedWhenItEnds) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("long", Prompt(60, 1), Compressed("h2o", 24))), "");
  DrainBehind("long", 30, [&] { EXPECT_EQ(TokensInFile("long"), -1); });
  EXPECT_EQ(TokensInFile("long"), 60 + 5 + 29);
}

TEST_F(SchedulerDrainTest, WhatCouldNotBeSavedIsTriedOnceMoreAndThenSaid) {
  Make(WithFolder());
  for (const char* id : {"idle", "long"}) ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  // A folder is in the place of the file.
  std::filesystem::create_directories(Path("idle") + "/inside");
  DrainBehind("long", 30, [&] { std::filesystem::remove_all(Path("idle")); });
  EXPECT_EQ(TokensInFile("idle"), 60);
}

// Otherwise clients that keep sending requests would keep the process from ending.
TEST_F(SchedulerDrainTest, NobodyBeginsWorkOnFilesAnyMore) {
  Make(WithFolder());
  for (const char* id : {"idle", "long"}) ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  std::vector<Outcome> outcomes;
  const auto add = [&](Outcome outcome) { outcomes.push_back(std::move(outcome)); };
  DrainBehind("long", 30, [&] {
    scheduler_->SaveSession("idle", "other", add);
    scheduler_->ForkSession("idle", "copy", add);
    scheduler_->RestoreSession("again", "idle", add);
    scheduler_->DeleteSession("idle", add);
  });
  ASSERT_EQ(outcomes.size(), 4u);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(Problem(outcome), "the server is shutting down");
  }
  EXPECT_EQ(TokensInFile("idle"), 60);
  EXPECT_EQ(TokensInFile("other"), -1);
}

TEST_F(SchedulerDrainTest, WithoutAFolderNamedSessionsEndWithTheProcess) {
  Make(Options());
  for (const char* id : {"idle", "long"}) ASSERT_EQ(Problem(Create(id, Prompt(60, 1))), "");
  DrainBehind("long", 30, [] {});
}

}  // namespace
}  // namespace winnow::runtime
