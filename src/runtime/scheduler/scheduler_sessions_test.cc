#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/store/session_names.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

using testing::SchedulerSessionsTest;

TEST(SessionNames, AreShortAndPlain) {
  for (const char* name : {"a", "A-1_b.c", "report.2026", "0"}) EXPECT_TRUE(IsSessionName(name));
  for (const std::string name : {"", ".", "..", ".hidden", "a/b", "../x", "a b", "a\nb", "ä"}) {
    EXPECT_FALSE(IsSessionName(name)) << name;
  }
  EXPECT_FALSE(IsSessionName(std::string("a\0b", 3)));
  EXPECT_TRUE(IsSessionName(std::string(128, 'a')));
  EXPECT_FALSE(IsSessionName(std::string(129, 'a')));
}

TEST_F(SchedulerSessionsTest, ADocumentIsReadOnceAndAskedOften) {
  Make(Options());
  const auto document = Prompt(100, 1);
  const SessionOptions options = Compressed("snapkv:window=8", 32);
  const auto made = Create("report", document, options);
  ASSERT_EQ(Problem(made), "");
  EXPECT_EQ(std::get<SessionInfo>(made).n_tokens, 100);
  EXPECT_EQ(std::get<SessionInfo>(made).cache.n_kept, 32);
  ASSERT_EQ(Problem(Fork("report", "second")), "");
  for (const std::string id : {"report", "second"}) {
    const auto answer = Exercise(id, Prompt(9, 2), 6);
    ASSERT_FALSE(answer->error) << answer->error->message;
    EXPECT_EQ(answer->n_reused, 100);
    EXPECT_EQ(answer->n_prompt, 109);
    EXPECT_EQ(answer->reuse, PrefixReuse::kCompressed);
    EXPECT_EQ(answer->tokens(), AloneAfter(document, Prompt(9, 2), 6, options));
  }
  // It continues after its response, whose last token was not read yet.
  const auto next = Exercise("report", Prompt(4, 3), 2);
  EXPECT_EQ(next->n_reused, 114);
  EXPECT_EQ(next->n_prompt, 119);
  EXPECT_EQ(List().size(), 2u);
  EXPECT_EQ(Problem(Delete("report")), "");
  EXPECT_EQ(Exercise("report", Prompt(4, 3), 2)->error->kind, ErrorKind::kNotFound);
  EXPECT_EQ(Problem(Delete("report")), "there is no session report");
  EXPECT_EQ(Problem(Create("second", document)),
            "session second already exists; delete it first, or choose another name");
}

TEST_F(SchedulerSessionsTest, BytesOfADeletedSessionAreGone) {
  Make(Options());
  ASSERT_EQ(Problem(Create("doc", Prompt(40, 1))), "");
  ASSERT_EQ(Problem(Fork("doc", "copy")), "");
  EXPECT_GT(scheduler_->state().live_bytes, 0);
  EXPECT_EQ(scheduler_->state().live_bytes, scheduler_->state().reserved_bytes);
  ASSERT_EQ(Problem(Delete("doc")), "");
  ASSERT_EQ(Problem(Delete("copy")), "");
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  EXPECT_EQ(scheduler_->state().live_bytes, 0);
}

TEST_F(SchedulerSessionsTest, OneRequestAtATime) {
  Make(Options());
  ASSERT_EQ(Problem(Create("chat", Prompt(40, 1))), "");
  Request request = MakeRequest(Prompt(5, 2), 30);
  request.session = "chat";
  const auto first = Submit(std::move(request));
  Request other = MakeRequest(Prompt(5, 2), 30);
  other.session = "chat";
  EXPECT_EQ(Submit(std::move(other))->error->kind, ErrorKind::kBusy);
  EXPECT_EQ(Problem(Fork("chat", "copy")), "session chat is in use by another request");
  EXPECT_EQ(Problem(Delete("chat")), "session chat is in use by another request");
  RunAll();
  EXPECT_EQ(first->finish(), Finish::kLength);
  EXPECT_FALSE(Exercise("chat", Prompt(5, 2), 3)->error);
}

// A request that ends during prefill leaves the session unchanged.
TEST_F(SchedulerSessionsTest, ACancelledQuestionLeavesTheSession) {
  Make(Options());
  for (const bool compressed : {false, true}) {
    const std::string id = compressed ? "compressed" : "full";
    const auto options = compressed ? Compressed("h2o", 24) : SessionOptions{};
    ASSERT_EQ(Problem(Create(id, Prompt(80, 1), options)), "");
    Request request = MakeRequest(Prompt(300, 2), 5);
    request.session = id;
    const auto question = Submit(std::move(request));
    RunUntil([&] { return scheduler_->state().n_running == 1; });
    ticket_->Cancel();
    RunAll();
    EXPECT_EQ(question->finish(), Finish::kCancelled);
    EXPECT_FALSE(question->started);
    const auto again = Exercise(id, Prompt(9, 3), 6);
    EXPECT_EQ(again->n_reused, 80);
    EXPECT_EQ(again->tokens(), AloneAfter(Prompt(80, 1), Prompt(9, 3), 6, options));
  }
}

TEST_F(SchedulerSessionsTest, PrefixesOfEndedSequencesAreFound) {
  Make(Options());
  const auto first = Submit(MakeRequest(Prompt(60, 1), 5));
  RunAll();
  // The prompt continues the same text: the sequence is taken over.
  std::vector<TokenId> longer = Joined(Joined(Prompt(60, 1), first->tokens()), Prompt(7, 2));
  const auto second = Submit(MakeRequest(longer, 5));
  RunAll();
  EXPECT_EQ(second->n_reused, 64);
  EXPECT_EQ(second->reuse, PrefixReuse::kExact);
  EXPECT_EQ(second->tokens(), Alone(longer, 5));
  EXPECT_EQ(scheduler_->state().n_idle_sessions, 1);
  // Another text with the same beginning: a truncated copy.
  const std::vector<TokenId> other = Joined(Prompt(60, 1), Prompt(30, 9));
  const auto third = Submit(MakeRequest(other, 5));
  RunAll();
  EXPECT_EQ(third->n_reused, 60);
  EXPECT_EQ(third->tokens(), Alone(other, 5));
  EXPECT_EQ(scheduler_->state().n_idle_sessions, 2);
  Request fresh = MakeRequest(longer, 5);
  fresh.reuse_prefix = false;
  const auto fourth = Submit(std::move(fresh));
  RunAll();
  EXPECT_EQ(fourth->n_reused, 0);
  EXPECT_EQ(fourth->reuse, PrefixReuse::kNone);
}

// A cache that was compressed for one question is not reused for another one, unless requested.
TEST_F(SchedulerSessionsTest, QuestionsDoNotShareWhatWasKeptForOne) {
  Make(Options());
  const auto ask = [&](const std::string& method, int number, bool across) {
    Request first = MakeRequest(Prompt(60, number), 5);
    first.options = Compressed(method, 24);
    const auto answer = Submit(std::move(first));
    RunAll();
    Request second =
        MakeRequest(Joined(Joined(Prompt(60, number), answer->tokens()), Prompt(7, 2)), 5);
    second.options = Compressed(method, 24);
    second.reuse_across_questions = across;
    const auto next = Submit(std::move(second));
    RunAll();
    return std::pair(next->n_reused, next->reuse);
  };
  EXPECT_EQ(ask("snapkv:window=8", 1, false), std::pair(int64_t{0}, PrefixReuse::kNone));
  EXPECT_EQ(ask("snapkv:window=8", 2, true), std::pair(int64_t{64}, PrefixReuse::kCompressed));
  EXPECT_EQ(ask("streaming", 3, false), std::pair(int64_t{64}, PrefixReuse::kCompressed));
  EXPECT_EQ(ask("knorm", 4, false), std::pair(int64_t{64}, PrefixReuse::kCompressed));
}

TEST_F(SchedulerSessionsTest, SessionsOutliveTheirMemory) {
  SchedulerOptions options = WithFolder();
  const auto plan = [&](int64_t n_prompt, int64_t n) {
    return PlanSequence(*Session::Make(*engine_, {}).value(), n_prompt, n).value();
  };
  options.max_running = 2;
  options.memory_limit_bytes = ModelBytes(*engine_) +
                               StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                               2 * plan(130, 20).steady + plan(130, 20).prefill;
  Make(options);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Problem(Create("s-" + std::to_string(i), Prompt(100, i))), "");
  }
  EXPECT_EQ(scheduler_->state().n_idle_sessions, 2);
  EXPECT_GE(scheduler_->state().n_saved_sessions, 3);
  ASSERT_EQ(List().size(), 5u);
  EXPECT_TRUE(List()[0].on_disk);
  EXPECT_FALSE(List()[4].on_disk);
  const SessionInfo saved = List()[0];
  EXPECT_EQ(saved.cache.bytes, 0) << "in memory";
  EXPECT_GT(saved.file_bytes, 0);
  EXPECT_EQ(saved.cache.bytes_full_f16, List()[4].cache.bytes_full_f16);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 5; ++i) {
      const auto answer = Exercise("s-" + std::to_string(i), Prompt(5, i), 4);
      ASSERT_FALSE(answer->error) << answer->error->message;
      EXPECT_EQ(answer->n_reused, round == 0 ? 100 : 108);
      if (round > 0) continue;
      EXPECT_EQ(answer->tokens(), AloneAfter(Prompt(100, i), Prompt(5, i), 4, {}));
    }
  }
}

TEST_F(SchedulerSessionsTest, WithoutAFolderTheOldestIsClosedAndSaysSo) {
  SchedulerOptions options = Options();
  const SequenceBytes one = PlanSequence(*Session::Make(*engine_, {}).value(), 100, 20).value();
  options.max_running = 2;
  options.memory_limit_bytes = ModelBytes(*engine_) +
                               StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                               2 * one.steady + one.prefill;
  Make(options);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(Problem(Create("s-" + std::to_string(i), Prompt(90, i))), "");
  }
  const auto closed = Exercise("s-0", Prompt(5, 1), 3);
  ASSERT_TRUE(closed->error);
  EXPECT_EQ(closed->error->kind, ErrorKind::kNotFound);
  EXPECT_NE(closed->error->message.find("session path"), std::string::npos);
  EXPECT_FALSE(Exercise("s-3", Prompt(5, 1), 3)->error);
  EXPECT_EQ(Problem(Save("s-3", "file")),
            "sessions are in memory only: there is no session path to save them to");
}

TEST_F(SchedulerSessionsTest, ADrainedSchedulerGoesOnInTheNextProcess) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("report", Prompt(100, 1), Compressed("h2o", 32))), "");
  Request request = MakeRequest(Prompt(5, 2), 30);
  request.session = "report";
  const auto answer = Submit(std::move(request));
  scheduler_->Drain();
  EXPECT_EQ(answer->finish(), Finish::kLength);
  EXPECT_EQ(Submit(MakeRequest(Prompt(5, 2), 3))->error->kind, ErrorKind::kUnavailable);
  const auto expected = [&] {
    scheduler_.reset();
    Make(Options());
    EXPECT_EQ(Problem(Create("report", Prompt(100, 1), Compressed("h2o", 32))), "");
    Exercise("report", Prompt(5, 2), 30);
    return Exercise("report", Prompt(6, 3), 5)->tokens();
  }();
  scheduler_.reset();
  Make(WithFolder());
  EXPECT_EQ(List().size(), 1u);
  const auto next = Exercise("report", Prompt(6, 3), 5);
  ASSERT_FALSE(next->error) << next->error->message;
  EXPECT_EQ(next->n_reused, 134);
  EXPECT_EQ(next->n_prompt, 141);  // the response's last token was saved too
  EXPECT_EQ(next->tokens(), expected);
}

TEST_F(SchedulerSessionsTest, NothingOutsideTheFolderIsTouched) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(20, 1))), "");
  for (const std::string name : {"../evil", "/tmp/evil", "", ".", ".a", "a/b", "a%2Fb"}) {
    EXPECT_NE(Problem(Save("a", name)), "") << name;
    EXPECT_NE(Problem(Restore("b", name)), "") << name;
    EXPECT_NE(Problem(Restore(name, "a")), "") << name;
    EXPECT_NE(Problem(Delete(name)), "") << name;
    if (!name.empty()) {
      EXPECT_NE(Problem(Create(name, Prompt(20, 1))), "") << name;
    }
    EXPECT_TRUE(Exercise(name, Prompt(4, 1), 1)->error) << name;
  }
  // Symbolic links in the folder are not followed, for reading or writing.
  ASSERT_EQ(Problem(Save("a", "a")), "");
  const std::string outside = folder_ + "-outside";
  std::filesystem::copy_file(folder_ + "/a.session", outside,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::create_symlink(outside, folder_ + "/link.session");
  EXPECT_EQ(Problem(Restore("b", "link")), "there is no saved session link");
  const auto before = std::filesystem::last_write_time(outside);
  ASSERT_EQ(Problem(Save("a", "link")), "");
  EXPECT_EQ(std::filesystem::last_write_time(outside), before);
  EXPECT_FALSE(std::filesystem::is_symlink(folder_ + "/link.session"));
  EXPECT_EQ(Problem(Restore("b", "link")), "");
  std::filesystem::remove(outside);
}

// Restoring a damaged file changes nothing.
TEST_F(SchedulerSessionsTest, ARestoredSessionReplacesOnlyWhenAllWasRight) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("a", Prompt(20, 1))), "");
  ASSERT_EQ(Problem(Save("a", "file")), "");
  Exercise("a", Prompt(4, 2), 3);
  const std::string path = folder_ + "/file.session";
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 100);
  EXPECT_NE(Problem(Restore("a", "file")).find("damaged"), std::string::npos);
  EXPECT_EQ(Exercise("a", Prompt(4, 2), 3)->n_reused, 26);
  EXPECT_EQ(Exercise("file", Prompt(4, 2), 3)->error->kind, ErrorKind::kNotFound);
  ASSERT_EQ(Problem(Save("a", "file")), "");
  ASSERT_EQ(Problem(Restore("b", "file")), "");
  EXPECT_EQ(Exercise("b", Prompt(4, 2), 1)->n_reused, 33);
}

// The length of a session's document is kept with the session, in memory and in files.
TEST_F(SchedulerSessionsTest, ADocumentIsKnownWhereItsSessionIs) {
  const auto n_document = [&](const std::string& id) {
    std::optional<std::variant<KeptTokens, RequestError>> outcome;
    scheduler_->KeptPositions(id, false, [&](auto kept) { outcome = std::move(kept); });
    RunAll();
    const auto* kept = std::get_if<KeptTokens>(&*outcome);
    return kept == nullptr ? -1 : kept->n_document;
  };
  for (const bool compressed : {false, true}) {
    Make(WithFolder());
    Request document = MakeRequest(Prompt(30, 1), 0);
    document.outline = {.n_document = 30};
    if (compressed) document.options = Compressed("h2o", 24);
    ASSERT_EQ(Problem(Wait([&](auto done) {
                scheduler_->CreateSession("report", std::move(document), done);
              })),
              "");
    EXPECT_EQ(n_document("report"), 30);
    EXPECT_FALSE(Exercise("report", Prompt(9, 2), 6)->error);
    EXPECT_EQ(n_document("report"), 30);
    // A cancelled request restores the session.
    Request question = MakeRequest(Prompt(300, 2), 5);
    question.session = "report";
    Submit(std::move(question));
    RunUntil([&] { return scheduler_->state().n_running == 1; });
    ticket_->Cancel();
    RunAll();
    EXPECT_EQ(n_document("report"), 30);
    ASSERT_EQ(Problem(Fork("report", "second")), "");
    EXPECT_EQ(n_document("second"), 30);
    ASSERT_EQ(Problem(Save("second", "file")), "");
    ASSERT_EQ(Problem(Create("other", Prompt(40, 3))), "");
    EXPECT_EQ(n_document("other"), 0);
    ASSERT_EQ(Problem(Restore("other", "file")), "");
    EXPECT_EQ(n_document("other"), 30);
    scheduler_->Drain();
    Make(WithFolder());
    EXPECT_EQ(n_document("report"), 30);
    const auto next = Exercise("report", Prompt(3, 4), 2);
    EXPECT_EQ(next->n_reused, 30 + 9 + 5) << "the token that was not read is in the file too";
    for (const char* id : {"report", "second", "other", "file"}) {
      EXPECT_EQ(Problem(Delete(id)), "");
      EXPECT_EQ(n_document(id), -1);
    }
  }
}

TEST_F(SchedulerSessionsTest, ShowsWhatIsKept) {
  Make(Options());
  ASSERT_EQ(Problem(Create("a", Prompt(50, 1), Compressed("streaming:sinks=4", 20))), "");
  std::optional<std::variant<KeptTokens, RequestError>> outcome;
  scheduler_->KeptPositions("a", true, [&](auto kept) { outcome = std::move(kept); });
  RunAll();
  const KeptTokens& kept = std::get<KeptTokens>(*outcome);
  EXPECT_EQ(kept.tokens, Prompt(50, 1));
  ASSERT_EQ(kept.by_head.size(), 6u);
  for (const auto& positions : kept.by_head) {
    EXPECT_EQ(positions.size(), 20u);
    EXPECT_TRUE(std::ranges::is_sorted(positions));
  }
  for (size_t i = 0; i < 50; ++i) EXPECT_NEAR(kept.share[i], i < 4 || i >= 34 ? 1 : 0, 1e-6);
}

}  // namespace
}  // namespace winnow::runtime
