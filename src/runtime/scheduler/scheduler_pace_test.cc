#include "runtime/scheduler/scheduler_pace.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime {
namespace {

using testing::Answer;
using testing::SchedulerSessionsTest;
using testing::SchedulerTest;

TEST(Pace, BlocksAreASmallPartOfTheGap) {
  Pace pace(250, 512);
  EXPECT_EQ(pace.BlockRows(), 64);  // nothing was measured yet
  pace.AddBlock(64, 6.4);
  EXPECT_EQ(pace.BlockRows(), 496);  // 50 ms
  pace.AddBlock(496, 4960);
  EXPECT_EQ(pace.BlockRows(), 32);  // the minimum
  for (int i = 0; i < 400; ++i) pace.AddBlock(16, 0.16);
  EXPECT_EQ(pace.BlockRows(), 512);
}

TEST(Pace, ABlockFitsWhereADecodeStepFollowsInTime) {
  Pace pace(100, 512);
  pace.AddDecode(40);
  pace.AddBlock(10, 10);
  EXPECT_TRUE(pace.Fits(30, 20));  // 30 + 20 + 40 of 90
  EXPECT_FALSE(pace.Fits(31, 20));
  for (int i = 0; i < 200; ++i) pace.AddDecode(1);
  EXPECT_TRUE(pace.Fits(60, 20));
}

double LongestGap(const Answer::Choice& choice) {
  double longest = 0;
  for (size_t i = 1; i < choice.times_ms.size(); ++i) {
    longest = std::max(longest, choice.times_ms[i] - choice.times_ms[i - 1]);
  }
  return longest;
}

// Prefill of 500 tokens through three layers takes 150 ms, a decode step of two sequences 0.6 ms.
TEST_F(SchedulerTest, ALongPromptKeepsTheGapBetweenTokens) {
  Make(Options());
  const auto first = Submit(MakeRequest(Prompt(8, 1), 400));
  const auto second = Submit(MakeRequest(Prompt(9, 2), 400));
  RunUntil([&] { return second->tokens().size() > 5; });
  const double before = clock_.ms();
  const auto prompt = Submit(MakeRequest(Prompt(500, 3), 2));
  RunUntil([&] { return prompt->started; });
  const double prefill_ms = clock_.ms() - before;
  RunAll();
  for (const auto& answer : {first, second}) {
    EXPECT_LE(LongestGap(answer->choices[0]), 20);
    EXPECT_GT(LongestGap(answer->choices[0]), 10);  // the prompt gets its share
    EXPECT_EQ(answer->tokens().size(), 400u);
  }
  EXPECT_GT(prompt->n_prefill_events, 5);
  EXPECT_LT(prefill_ms, 200);
  EXPECT_EQ(first->tokens(), Alone(Prompt(8, 1), 400));
  EXPECT_EQ(prompt->tokens(), Alone(Prompt(500, 3), 2));
}

// Each call takes 1 ms; the gap is 20 ms.
TEST_F(SchedulerTest, ManyCallsAboutSessionsKeepTheGap) {
  Make(Options());
  const auto running = Submit(MakeRequest(Prompt(8, 1), 40));
  RunUntil([&] { return running->tokens().size() > 5; });
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    scheduler_->ListSessions([&, i](const auto&) {
      clock_.Advance(1);
      order.push_back(i);
    });
  }
  RunAll();
  EXPECT_LE(LongestGap(running->choices[0]), 20);
  EXPECT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

// Each look at the clock takes 1 ms: one file of the folder between two steps.
TEST_F(SchedulerSessionsTest, ManyFilesAreListedBetweenSteps) {
  Make(WithFolder());
  ASSERT_EQ(Problem(Create("s", Prompt(10, 1))), "");
  ASSERT_EQ(Problem(Save("s", "s")), "");
  const testing::TickingClock clock;
  scheduler_.reset();
  constexpr int kFiles = 30;
  for (int i = 1; i < kFiles; ++i) {
    std::filesystem::copy_file(folder_ + "/s.session",
                               folder_ + "/s-" + std::to_string(i) + ".session");
  }
  scheduler_ = Scheduler::Make(*engine_, WithFolder(), log_, &clock).value();
  const auto running = Submit(MakeRequest(Prompt(8, 1), 200));
  RunUntil([&] { return running->tokens().size() > 2; });
  const size_t n_before = running->tokens().size();
  size_t n_listed = 0;
  scheduler_->ListSessions([&](const auto& sessions) { n_listed = sessions.size(); });
  RunUntil([&] { return n_listed > 0; });
  EXPECT_EQ(n_listed, kFiles);
  EXPECT_GT(running->tokens().size(), n_before + kFiles / 2);
  EXPECT_FALSE(running->done());
  RunAll();
}

// The model is ten times slower: blocks shrink to the minimum.
TEST_F(SchedulerTest, BlocksBecomeSmallerOnASlowModel) {
  Make(Options());
  const auto running = Submit(MakeRequest(Prompt(8, 1), 150));
  RunUntil([&] { return running->tokens().size() > 2; });
  row_ms_ = 0.5;  // a whole block of 64 rows takes 32 ms
  const auto warm = Submit(MakeRequest(Prompt(60, 2), 1));
  RunUntil([&] { return warm->done(); });
  const size_t n_before = running->tokens().size();
  const auto prompt = Submit(MakeRequest(Prompt(200, 3), 1));
  RunUntil([&] { return prompt->done(); });
  Answer::Choice since = running->choices[0];
  since.times_ms.erase(since.times_ms.begin(),
                       since.times_ms.begin() + static_cast<std::ptrdiff_t>(n_before));
  EXPECT_LE(LongestGap(since), 20);
  EXPECT_EQ(prompt->tokens(), Alone(Prompt(200, 3), 1));
}

// Prompts are read even if a decode step alone takes longer than the gap.
TEST_F(SchedulerTest, PromptsAreReadWhateverTheGap) {
  SchedulerOptions options = Options();
  options.max_token_gap_ms = 1;
  Make(options);
  row_ms_ = 2;
  const auto running = Submit(MakeRequest(Prompt(8, 1), 60));
  const auto prompt = Submit(MakeRequest(Prompt(100, 3), 1));
  RunAll();
  EXPECT_EQ(running->finish(), Finish::kLength);
  EXPECT_EQ(prompt->finish(), Finish::kLength);
}

TEST_F(SchedulerTest, ShortPromptsAreReadTogether) {
  Make(Options());
  std::vector<std::shared_ptr<Answer>> answers(6);
  for (int i = 0; i < 6; ++i) {
    answers[static_cast<size_t>(i)] = Submit(MakeRequest(Prompt(20 + i, i), 3));
  }
  RunUntil([&] { return answers[0]->started; });
  for (const auto& answer : answers) EXPECT_TRUE(answer->started);
  RunAll();
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens(), Alone(Prompt(20 + i, i), 3));
  }
}

}  // namespace
}  // namespace winnow::runtime
