#include <filesystem>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/store/session_file.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

class SchedulerRestoreTest : public testing::SchedulerSessionsTest {
 protected:
  // Saves a session `name` that is not in memory afterwards.
  void SaveAlone(const std::string& name, int n_tokens, std::optional<SessionOptions> options) {
    Make(WithFolder());
    ASSERT_EQ(Problem(Create(name, Prompt(n_tokens, 1), std::move(options))), "");
    Exercise(name, Prompt(7, 2), 5);
    ASSERT_EQ(Problem(Save(name, name)), "");
    scheduler_.reset();
  }
  int64_t FileBytes(const std::string& name) const {
    return static_cast<int64_t>(std::filesystem::file_size(folder_ + "/" + name + ".session"));
  }
  // Bytes of a session restored from its file, and their upper bound.
  std::pair<int64_t, int64_t> ActualAndMaxBytes(const std::string& name) {
    const std::string path = folder_ + "/" + name + ".session";
    const SessionFileInfo info = ReadSessionInfo(path).value();
    const SessionOptions options = SessionOptionsFrom(info).value();
    const auto empty = Session::Make(*engine_, options).value();
    const auto session = RestoreSession(*engine_, options, path).value();
    return {IdleBytes(*session), MaxRestoredBytes(*empty, info.n_tokens, FileBytes(name))};
  }
};

// A restored session reserves its bytes before it is read: running requests keep theirs.
TEST_F(SchedulerRestoreTest, TakesNoMoreThanIsFree) {
  SaveAlone("a", 60, Compressed("h2o", 32));
  const auto [actual, max] = ActualAndMaxBytes("a");
  const SequenceBytes running = PlanSequence(*Session::Make(*engine_, {}).value(), 60, 39).value();
  for (const bool fits : {false, true}) {
    SchedulerOptions options = WithFolder();
    options.max_running = 2;
    options.memory_limit_bytes = ModelBytes(*engine_) +
                                 StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                                 running.steady + (fits ? max : actual - 1);
    ASSERT_GT(actual - 1, FileBytes("a"));
    ASSERT_GT(actual - 1, running.prefill);
    Make(options);
    const auto answer = Submit(MakeRequest(Prompt(60, 2), 40));
    RunUntil([&] { return answer->tokens().size() > 2; });
    EXPECT_EQ(Problem(Restore("a", "a")).empty(), fits);
    EXPECT_LE(scheduler_->state().fixed_bytes + scheduler_->state().reserved_bytes,
              options.memory_limit_bytes);
    // A request for the session waits if it does not fit.
    Request question = MakeRequest(Prompt(3, 4), 2);
    question.session = "a";
    const auto asked = Submit(std::move(question));
    while (scheduler_->Round()) {
      EXPECT_LE(scheduler_->state().fixed_bytes + scheduler_->state().reserved_bytes,
                options.memory_limit_bytes);
    }
    EXPECT_EQ(answer->tokens(), Alone(Prompt(60, 2), 40));
    EXPECT_EQ(asked->finish(), Finish::kLength);
  }
}

TEST_F(SchedulerRestoreTest, TheBytesOfASessionFollowFromItsFile) {
  const std::vector<std::pair<const char*, SessionOptions>> all = {
      {"full", {}},
      {"h2o", Compressed("h2o", 32)},
      {"snapkv", Compressed("snapkv:window=8", 300)},
      {"streaming", Compressed("streaming", 16)},
      {"ems", Compressed("ems", 64)},
      {"tova", Compressed("tova", 17)},
      {"small", Compressed("knorm", 4)}};
  for (const auto& [name, options] : all) {
    ASSERT_NO_FATAL_FAILURE(SaveAlone(name, 320, options));
    const auto [actual, max] = ActualAndMaxBytes(name);
    EXPECT_LE(actual, max) << name;
    // Slack: the logits twice, six lists, the file's header, a sixteenth for shared rows.
    EXPECT_LE(max, actual + actual / 16 + 8 * 1024) << name;
  }
}

}  // namespace
}  // namespace winnow::runtime
