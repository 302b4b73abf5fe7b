#include <algorithm>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/scheduler/scheduler_queue.h"
#include "runtime/session/batch_memory.h"
#include "runtime/testing/scheduler_run.h"

namespace winnow::runtime {
namespace {

using testing::Answer;
using testing::SchedulerTest;

std::shared_ptr<Job> MakeJob(uint64_t id, int priority = 0) {
  static SessionNames names;
  auto job = std::make_shared<Job>(names);
  job->ticket = std::make_shared<TicketData>();
  job->ticket->id = id;
  job->request.priority = priority;
  return job;
}

std::vector<uint64_t> Order(const WaitingQueue& queue) {
  std::vector<uint64_t> ids;
  for (const auto& job : queue.jobs()) ids.push_back(job->id());
  return ids;
}

TEST(WaitingQueue, GoesByPriorityThenAge) {
  WaitingQueue queue(4);
  for (const auto& [id, priority] : {std::pair(1, 0), {2, 1}, {3, 0}, {4, 1}, {5, -1}, {6, 2}}) {
    queue.Add(MakeJob(static_cast<uint64_t>(id), priority));
  }
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{6, 2, 4, 1, 3, 5}));
}

TEST(WaitingQueue, NobodyIsOvertakenMoreThanSoOften) {
  WaitingQueue queue(2);
  using Turn = WaitingQueue::Answer;
  for (uint64_t id = 1; id <= 6; ++id) queue.Add(MakeJob(id));
  // The first and the third do not fit.
  const auto offer = [](const std::shared_ptr<Job>& job) {
    return job->id() == 1 || job->id() == 3 ? Turn::kWaits : Turn::kStarted;
  };
  EXPECT_TRUE(queue.Offer(offer));
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{1, 3, 4, 5, 6}));
  EXPECT_TRUE(queue.Offer(offer));
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{1, 3, 5, 6}));
  EXPECT_FALSE(queue.Offer(offer));  // the first was overtaken twice
  EXPECT_TRUE(queue.Offer([](const auto&) { return Turn::kStarted; }));
  // The third was overtaken once.
  EXPECT_TRUE(queue.Offer(offer));
  EXPECT_FALSE(queue.Offer(offer));
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{3, 6}));
}

// Only requests that need the file wait for the disk.
TEST(WaitingQueue, ThoseWhoseSessionIsReadKeepNobodyWaiting) {
  WaitingQueue queue(1);
  using Turn = WaitingQueue::Answer;
  for (uint64_t id = 1; id <= 5; ++id) queue.Add(MakeJob(id));
  queue.jobs()[0]->loading = true;
  const auto offer = [](const std::shared_ptr<Job>& job) {
    return job->id() == 1 ? Turn::kWaits : Turn::kStarted;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.Offer(offer));
  queue.jobs()[0]->loading = false;
  EXPECT_TRUE(queue.Offer(offer));
  queue.Add(MakeJob(6));
  EXPECT_FALSE(queue.Offer(offer)) << "it was overtaken once";
}

TEST(WaitingQueue, ThoseThatEndWithoutATurnOvertakeNobody) {
  WaitingQueue queue(1);
  using Turn = WaitingQueue::Answer;
  for (uint64_t id = 1; id <= 3; ++id) queue.Add(MakeJob(id));
  EXPECT_FALSE(queue.Offer(
      [](const std::shared_ptr<Job>& job) { return job->id() == 1 ? Turn::kWaits : Turn::kGone; }));
  EXPECT_EQ(Order(queue), (std::vector<uint64_t>{1}));
  EXPECT_EQ(queue.jobs()[0]->n_overtaken, 0);
}

class AdmissionTest : public SchedulerTest {
 protected:
  SequenceBytes Plan(int64_t n_prompt, int64_t n_generate, const SessionOptions& options = {}) {
    return PlanSequence(*Session::Make(*engine_, options).value(), n_prompt, n_generate).value();
  }
  // A limit under which `n_bytes` are free beside the model and the buffers.
  SchedulerOptions Limited(int64_t n_bytes, int max_running = 8) {
    SchedulerOptions options = Options();
    options.max_running = max_running;
    options.memory_limit_bytes =
        ModelBytes(*engine_) + StepBufferBytes(*engine_, max_running, options.defaults.row_block) +
        n_bytes;
    return options;
  }
};

TEST_F(AdmissionTest, TheSumOfAllReservationsIsKnown) {
  // 3 layers, 2 KV heads, 16 + 16 half-precision numbers: 384 bytes a token.
  const SequenceBytes full = Plan(100, 50);
  const int64_t cache = 150 * 3 * 2 * 32 * 2;
  const int64_t logits = 4 * testing::kVocabulary * 4;
  const int64_t pages = 2 * 4096 * 6;
  EXPECT_EQ(full.steady, cache + logits + pages + 150 * 4);
  EXPECT_EQ(full.prefill, 100 * 64 * 4);  // hidden states only: nothing is compressed
  // A method that keeps a fixed size reserves that size, however many tokens are generated.
  const SessionOptions h2o = Compressed("h2o", 32);
  EXPECT_LE(Plan(400, 1000, h2o).steady - Plan(400, 10, h2o).steady, 4 * 990);
  EXPECT_GT(Plan(400, 10, h2o).prefill, 400 * 64 * 4);  // the current layer holds the whole prompt
}

TEST_F(AdmissionTest, SequencesThatDoNotFitWaitAndNothingIsPreempted) {
  const SequenceBytes one = Plan(60, 19);
  Make(Limited(3 * one.steady + one.prefill));
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 9; ++i) {
    Request request = MakeRequest(Prompt(60, i), 20);
    request.keep = false;
    answers.push_back(Submit(std::move(request)));
  }
  int max = 0;
  while (scheduler_->Round()) {
    const SchedulerState state = scheduler_->state();
    max = std::max(max, state.n_running);
    EXPECT_LE(state.live_bytes, state.reserved_bytes);
  }
  EXPECT_EQ(max, 3);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(answers[static_cast<size_t>(i)]->tokens(), Alone(Prompt(60, i), 20));
  }
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
}

TEST_F(AdmissionTest, WhatCanNeverFitIsRefusedWithBothNumbers) {
  const SequenceBytes one = Plan(60, 19);
  const SchedulerOptions options = Limited(one.steady + one.prefill);
  Make(options);
  EXPECT_FALSE(Submit(MakeRequest(Prompt(60, 1), 20))->error);
  const auto large = Submit(MakeRequest(Prompt(60, 1), 21));
  ASSERT_TRUE(large->error);
  EXPECT_EQ(large->error->kind, ErrorKind::kTooLarge);
  const int64_t needed = options.memory_limit_bytes + 6 * 32 * 2 + 4;
  EXPECT_EQ(large->error->message, "60 tokens and 21 to generate, 1 times, need " +
                                       std::to_string(needed) +
                                       " bytes with the model and its buffers, the limit is " +
                                       std::to_string(options.memory_limit_bytes) +
                                       "; ask for fewer tokens or a smaller cache");
  Request twice = MakeRequest(Prompt(60, 1), 20);
  twice.n = 2;
  EXPECT_EQ(Submit(std::move(twice))->error->kind, ErrorKind::kTooLarge);
  // With compression, a longer request fits.
  Request small = MakeRequest(Prompt(60, 1), 400);
  small.options = Compressed("streaming", 16);
  EXPECT_FALSE(Submit(std::move(small))->error);
  RunAll();
}

TEST_F(AdmissionTest, ALimitBelowTheModelIsAnError) {
  SchedulerOptions options = Limited(0);
  const auto refused = Scheduler::Make(*engine_, options, log_, &clock_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find(std::to_string(options.memory_limit_bytes)),
            std::string::npos);
}

TEST_F(AdmissionTest, ASmallOneOvertakesALargeOneSoOften) {
  const SequenceBytes large = Plan(200, 99), small = Plan(30, 9);
  SchedulerOptions options = Limited(large.steady + large.prefill + small.steady);
  options.max_overtakes = 3;
  Make(options);
  std::vector<std::string> order;
  const auto submit = [&](const std::string& name, int n_prompt, int64_t max_tokens) {
    Request request = MakeRequest(Prompt(n_prompt, n_prompt), max_tokens);
    request.keep = false;
    request.on_event = [&order, name](const Event& event) {
      if (event.kind == Event::Kind::kStarted) order.push_back(name);
    };
    ASSERT_TRUE(std::holds_alternative<Ticket>(scheduler_->Submit(std::move(request))));
  };
  submit("first", 200, 100);
  ASSERT_TRUE(scheduler_->Round());
  submit("second", 200, 100);  // waits until the first ends
  for (int i = 0; i < 5; ++i) submit("small", 30, 10);
  RunAll();
  const std::vector<std::string> expected = {"first",  "small", "small", "small",
                                             "second", "small", "small"};
  EXPECT_EQ(order, expected);
}

TEST_F(AdmissionTest, IdleSequencesMakeRoom) {
  const SequenceBytes one = Plan(60, 19);
  Make(Limited(2 * one.steady + one.prefill));
  for (int i = 0; i < 6; ++i) {
    Submit(MakeRequest(Prompt(60, i), 20));
    RunAll();
  }
  const SchedulerState state = scheduler_->state();
  EXPECT_EQ(state.n_idle_sessions, 2);
  EXPECT_LE(state.reserved_bytes, state.limit_bytes);
}

TEST_F(AdmissionTest, CancelledInTheQueueInPrefillAndInDecode) {
  const SequenceBytes one = Plan(300, 99);
  Make(Limited(one.steady + one.prefill));
  const auto submit = [&](int number) {
    Request request = MakeRequest(Prompt(300, number), 100);
    request.keep = false;
    return Submit(std::move(request));
  };
  const auto reading = submit(1);
  Ticket reading_ticket = *ticket_;
  const auto waiting = submit(2);
  Ticket waiting_ticket = *ticket_;
  const auto running = submit(3);
  Ticket running_ticket = *ticket_;

  waiting_ticket.Cancel();
  RunUntil([&] { return waiting->done(); });
  EXPECT_EQ(waiting->finish(), Finish::kCancelled);
  EXPECT_FALSE(waiting->started);

  ASSERT_TRUE(reading->n_prefill_events > 0 && !reading->started);
  reading_ticket.Cancel();
  scheduler_->Round();
  EXPECT_EQ(reading->finish(), Finish::kCancelled);
  EXPECT_TRUE(reading->tokens().empty());

  RunUntil([&] { return running->tokens().size() > 3; });
  running_ticket.Cancel();
  scheduler_->Round();
  EXPECT_EQ(running->finish(), Finish::kCancelled);
  EXPECT_LT(running->tokens().size(), 10u);
  RunAll();
  EXPECT_EQ(scheduler_->state().reserved_bytes, 0);
  EXPECT_EQ(scheduler_->state().n_cancelled, 3);
  running_ticket.Cancel();  // no effect: it has ended
  EXPECT_FALSE(scheduler_->Round());
}

// A cancelled prompt computes no block after the current one.
TEST_F(AdmissionTest, ACancelledPromptStopsWithinABlock) {
  SchedulerOptions options = Options();
  options.max_token_gap_ms = 10000;
  int n_blocks = 0;
  options.defaults.on_projections = [&](const attention::Projections& rows) {
    if (rows.rotated) return;
    if (++n_blocks == 5) ticket_->Cancel();
  };
  Make(options);
  const auto answer = Submit(MakeRequest(Prompt(500, 1), 5));
  RunAll();
  EXPECT_EQ(n_blocks, 5);
  EXPECT_EQ(answer->finish(), Finish::kCancelled);
  EXPECT_EQ(scheduler_->state().live_bytes, 0);
}

// One of several short prompts that share a pass.
TEST_F(AdmissionTest, ACancelledPromptLeavesItsCompanyAlone) {
  SchedulerOptions options = Options();
  options.defaults.row_block = 16;
  int n_blocks = 0;
  options.defaults.on_projections = [&](const attention::Projections& rows) {
    if (!rows.rotated && ++n_blocks == 7) ticket_->Cancel();
  };
  Make(options);
  const auto first = Submit(MakeRequest(Prompt(40, 1), 5));
  const auto third = Submit(MakeRequest(Prompt(37, 3), 5));
  const auto second = Submit(MakeRequest(Prompt(45, 2), 5));
  RunAll();
  EXPECT_EQ(second->finish(), Finish::kCancelled);
  EXPECT_EQ(first->tokens(), Alone(Prompt(40, 1), 5));
  EXPECT_EQ(third->tokens(), Alone(Prompt(37, 3), 5));
}

}  // namespace
}  // namespace winnow::runtime
