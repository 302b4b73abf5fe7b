// Saved sessions that share a prefix with later prompts.
#include <filesystem>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_files_run.h"

namespace winnow::runtime {
namespace {

class SchedulerSavedPrefixesTest : public testing::SchedulerFilesTest {
 protected:
  // Saves a document as an earlier process would have.
  void SaveBefore(const std::string& name, int n_tokens,
                  std::optional<SessionOptions> options = {}) {
    Make(WithFolder());
    ASSERT_EQ(Problem(Create(name, Prompt(n_tokens, 1), std::move(options))), "");
    ASSERT_EQ(Problem(Save(name, name)), "");
    scheduler_.reset();
  }
  std::shared_ptr<testing::Answer> Ask(const std::vector<TokenId>& prompt,
                                       std::optional<SessionOptions> options = {},
                                       bool reuse = true) {
    Request request = MakeRequest(prompt, 6);
    request.options = std::move(options);
    request.reuse_prefix = reuse;
    request.keep = false;
    auto answer = Submit(std::move(request));
    RunAll();
    return answer;
  }
  // Counts the named sessions in memory.
  int NumberInMemory() {
    int n = 0;
    for (const SessionInfo& info : List()) n += info.on_disk ? 0 : 1;
    return n;
  }
};

TEST_F(SchedulerSavedPrefixesTest, ADocumentIsReadOnceInTwoProcesses) {
  SaveBefore("book", 200);
  Make(WithFolder());
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  EXPECT_EQ(Ask(prompt, {}, /*reuse=*/false)->n_reused, 0);
  EXPECT_EQ(NumberInMemory(), 0);
  for (int i = 0; i < 2; ++i) {
    const auto answer = Ask(prompt);
    EXPECT_EQ(answer->n_reused, 200);
    EXPECT_EQ(answer->reuse, PrefixReuse::kExact);
    EXPECT_EQ(answer->tokens(), Alone(prompt, 6));
  }
  // The session itself is unchanged.
  const auto asked = Exercise("book", Prompt(9, 3), 6);
  EXPECT_EQ(asked->n_reused, 200);
  EXPECT_EQ(asked->tokens(), Alone(prompt, 6));
  // A part of the text can be reused too.
  const std::vector<TokenId> other = Joined(Prompt(150, 1), Prompt(9, 4));
  EXPECT_EQ(Ask(other)->tokens(), Alone(other, 6));
}

TEST_F(SchedulerSavedPrefixesTest, ACompressedDocumentServesWhereAnotherQuestionMayHaveIt) {
  const SessionOptions streaming = Compressed("streaming", 32);
  SaveBefore("book", 200, streaming);
  SaveBefore("asked", 200, Compressed("snapkv:window=8", 32));
  Make(WithFolder());
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  EXPECT_EQ(Ask(prompt)->n_reused, 0) << "a full cache";
  EXPECT_EQ(Ask(prompt, Compressed("snapkv:window=8", 32))->n_reused, 0);
  EXPECT_EQ(NumberInMemory(), 0);
  const auto answer = Ask(prompt, streaming);
  EXPECT_EQ(answer->n_reused, 200);
  EXPECT_EQ(answer->reuse, PrefixReuse::kCompressed);
  EXPECT_EQ(answer->tokens(), AloneAfter(Prompt(200, 1), Prompt(9, 3), 6, streaming));
}

TEST_F(SchedulerSavedPrefixesTest, WhatCannotBeReadIsReadFromThePrompt) {
  SaveBefore("book", 200);
  Make(WithFolder());
  // Damage the end: header and text stay intact.
  const std::string path = folder_ + "/book.session";
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  for (int i = 0; i < 2; ++i) {
    const auto answer = Ask(prompt);
    EXPECT_EQ(answer->n_reused, 0);
    EXPECT_EQ(answer->tokens(), Alone(prompt, 6));
  }
}

TEST_F(SchedulerSavedPrefixesTest, FilesOfThisProcessAreKnownUntilTheyAreRemoved) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(200, 1))), "");
  ASSERT_EQ(Problem(Save("a", "b")), "");
  ASSERT_EQ(Problem(Delete("a")), "");
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  EXPECT_EQ(Ask(prompt)->n_reused, 200) << "from the file b";
  ASSERT_EQ(Problem(Delete("b")), "");
  const auto answer = Ask(prompt);
  EXPECT_EQ(answer->n_reused, 0);
  EXPECT_EQ(answer->tokens(), Alone(prompt, 6));
}

// The session of that name is longer by now; a question on it is cancelled while its file is read.
TEST_F(SchedulerSavedPrefixesTest, ARunningSessionIsNotReplacedByItsFile) {
  SaveBefore("book", 200);
  Make(WithFolder());
  ASSERT_EQ(Exercise("book", Prompt(40, 7), 3)->n_reused, 200);
  const auto running = Submit(MakeRequest(Prompt(20, 6), 60));  // makes prompts take many rounds
  RunUntil([&] { return running->tokens().size() > 2; });
  Request question = MakeRequest(Prompt(150, 8), 5);
  question.session = "book";
  const auto asked = scheduler_->Submit(std::move(question));
  ASSERT_TRUE(std::holds_alternative<Ticket>(asked));
  const auto other = Submit(MakeRequest(Joined(Prompt(200, 1), Prompt(9, 3)), 1));
  for (int round = 0; round < 2; ++round) scheduler_->Round();
  ASSERT_TRUE(scheduler_->state().running[1].prefilling);
  Ticket ticket = std::get<Ticket>(asked);
  ticket.Cancel();
  RunAll();
  EXPECT_EQ(other->n_reused, 200);
  EXPECT_EQ(Exercise("book", Prompt(3, 9), 1)->n_reused, 200 + 40 + 2);
}

// A session read from a file for its prefix is not written over what was saved to that file later.
TEST_F(SchedulerSavedPrefixesTest, ALaterFileIsNotWrittenOver) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("writer", Prompt(200, 1))), "");
  ASSERT_EQ(Problem(Save("writer", "book")), "");
  scheduler_->Drain();
  Make(WithFolder());
  // Of the two files, "book" is read for the prompt.
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  ASSERT_EQ(Ask(prompt)->n_reused, 200);
  Exercise("writer", Prompt(9, 2), 3);
  ASSERT_EQ(Problem(Save("writer", "book")), "");
  const int64_t n_saved = TokensInFile("book");
  ASSERT_GT(n_saved, 200);
  scheduler_->Drain();
  EXPECT_EQ(TokensInFile("book"), n_saved);
}

// The context must hold the new session's tokens, not those of the session it is copied from.
TEST_F(SchedulerSavedPrefixesTest, ANewSessionTakesAPartOfALongOne) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("long", Prompt(450, 1))), "");
  ASSERT_LT(kContext, 450 + 200);
  std::vector<TokenId> prompt = Prompt(450, 1);
  prompt.resize(100);
  prompt = Joined(prompt, Prompt(200, 3));
  EXPECT_EQ(Problem(Create("new", prompt)), "");
}

// First there is room for the prompt alone, then also for the session and its copy.
TEST_F(SchedulerSavedPrefixesTest, WhereThereIsNoRoomThePromptIsRead) {
  SaveBefore("book", 200);
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  const SequenceBytes alone = PlanSequence(*Session::Make(*engine_, {}).value(), 209, 5).value();
  const int64_t base = alone.steady + alone.prefill;
  for (const auto& [room, n_reused] : {std::pair(base, 0), std::pair(base * 4, 200)}) {
    SchedulerOptions options = WithFolder();
    options.max_running = 2;
    options.memory_limit_bytes =
        ModelBytes(*engine_) + StepBufferBytes(*engine_, 2, options.defaults.row_block) + room;
    Make(options);
    const auto answer = Ask(prompt);
    EXPECT_FALSE(answer->error.has_value());
    EXPECT_EQ(answer->n_reused, n_reused);
    EXPECT_EQ(answer->tokens(), Alone(prompt, 6));
  }
}

// A session in memory that shares the prefix takes the room of its copy: it is evicted.
TEST_F(SchedulerSavedPrefixesTest, ASessionThatCannotBeCopiedDoesNotStandInTheWay) {
  const SequenceBytes alone = PlanSequence(*Session::Make(*engine_, {}).value(), 209, 5).value();
  SchedulerOptions options = WithFolder();
  options.max_running = 2;
  options.memory_limit_bytes = ModelBytes(*engine_) +
                               StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                               alone.steady + alone.prefill;
  Make(options);
  ASSERT_EQ(Problem(Create("book", Prompt(200, 1))), "");
  const std::vector<TokenId> prompt = Joined(Prompt(200, 1), Prompt(9, 3));
  const auto answer = Ask(prompt);
  ASSERT_FALSE(answer->error.has_value()) << answer->error->message;
  EXPECT_EQ(answer->n_reused, 0);
  EXPECT_EQ(answer->tokens(), Alone(prompt, 6));
  EXPECT_EQ(Exercise("book", Prompt(9, 3), 6)->tokens(), Alone(prompt, 6));
}

// A request that waits for a file does not hold up others.
TEST_F(SchedulerSavedPrefixesTest, OthersGoOnWhileAFileIsRead) {
  SaveBefore("book", 200);
  MakeSlow();
  Request request = MakeRequest(Joined(Prompt(200, 1), Prompt(9, 3)), 6);
  std::promise<int64_t> reused;
  request.on_event = [&](const Event& event) {
    if (event.kind == Event::Kind::kStarted) reused.set_value(event.n_reused);
  };
  ASSERT_TRUE(std::holds_alternative<Ticket>(scheduler_->Submit(std::move(request))));
  ASSERT_TRUE(disk_->WaitUntilBusy());
  EXPECT_EQ(End(BeginAnswer("", 60, 5)).size(), 5U);
  std::future<int64_t> n_reused = reused.get_future();
  EXPECT_EQ(n_reused.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  disk_->Free();
  ASSERT_EQ(n_reused.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  EXPECT_EQ(n_reused.get(), 200);
  scheduler_->Stop();
}

}  // namespace
}  // namespace winnow::runtime
