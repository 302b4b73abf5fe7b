#include "server/openai/constraint_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "server/openai/testing/fakes.h"

namespace winnow::server {
namespace {

constexpr std::chrono::seconds kDeadline{60};  // a regression fails instead of hanging

// Blocks until GoOn.
class SlowFactory final : public ConstraintFactory {
 public:
  Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec, const std::function<bool()>& cancelled) const override {
    ++n_made;
    if (spec.text == "endless") return Endless(cancelled);
    if (may_go_on.wait_for(kDeadline) != std::future_status::ready) return Error{"waits for ever"};
    if (spec.text == "none") return Error{"is none"};
    if (spec.text == "throws") throw std::bad_alloc();
    return std::unique_ptr<runtime::TokenConstraint>(std::make_unique<testing::FreeConstraint>());
  }
  void GoOn() { gate.set_value(); }
  // As a compiler that is asked to end now and then.
  static Error Endless(const std::function<bool()>& cancelled) {
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    while (!cancelled() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Error{std::chrono::steady_clock::now() < until ? "ended early" : "was never ended"};
  }

  mutable std::atomic<int> n_made{0};
  std::promise<void> gate;
  std::shared_future<void> may_go_on = gate.get_future().share();
};

struct Asked {
  std::promise<ConstraintQueue::Outcome> promise;
  std::atomic<bool> cancelled{false};
};

class ConstraintQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<Asked> Ask(const std::string& text) { return Ask(text, queue); }
  static std::shared_ptr<Asked> Ask(const std::string& text, ConstraintQueue& of) {
    auto asked = std::make_shared<Asked>();
    of.Make({.spec = {.kind = ConstraintSpec::Kind::kGrammar, .text = text, .field = "grammar"},
             .cancelled = [asked] { return asked->cancelled.load(); },
             .done =
                 [asked](ConstraintQueue::Outcome outcome) {
                   asked->promise.set_value(std::move(outcome));
                 }});
    return asked;
  }
  static int Status(Asked& asked) {
    auto future = asked.promise.get_future();
    if (future.wait_for(kDeadline) != std::future_status::ready) return 0;  // never answered
    const auto outcome = future.get();
    const auto* error = std::get_if<ApiError>(&outcome);
    return error == nullptr ? 200 : error->status;
  }
  void WaitForFirst() const { WaitUntilBegun(1); }
  void WaitUntilBegun(int n) const {
    const auto until = std::chrono::steady_clock::now() + kDeadline;
    while (factory->n_made < n) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "only " << factory->n_made << " begun";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Fills the queue, behind a job that runs.
  std::vector<std::shared_ptr<Asked>> Fill() {
    std::vector<std::shared_ptr<Asked>> waiting;
    waiting.reserve(64);
    for (int i = 0; i < 64; ++i) waiting.push_back(Ask("next"));
    return waiting;
  }

  std::shared_ptr<SlowFactory> factory = std::make_shared<SlowFactory>();
  ConstraintQueue queue{factory};
};

TEST_F(ConstraintQueueTest, NobodyWaitsInTheCallersThread) {
  const auto first = Ask("slow"), wrong = Ask("none"), broken = Ask("throws");
  WaitForFirst();
  factory->GoOn();  // never reached if Make blocked its caller
  EXPECT_EQ(Status(*first), 200);
  EXPECT_EQ(Status(*wrong), 400);
  EXPECT_EQ(Status(*broken), 500);
}

TEST_F(ConstraintQueueTest, CancelledJobIsSkipped) {
  const auto first = Ask("slow"), gone = Ask("gone"), last = Ask("last");
  WaitForFirst();
  gone->cancelled = true;
  factory->GoOn();
  EXPECT_EQ(Status(*last), 200);
  EXPECT_EQ(factory->n_made, 2);
}

TEST_F(ConstraintQueueTest, ManyThatWaitAreRefused) {
  const auto first = Ask("slow");
  WaitForFirst();
  const auto waiting = Fill();
  EXPECT_EQ(Status(*Ask("one more")), 429);
  factory->GoOn();
  for (const auto& asked : waiting) EXPECT_EQ(Status(*asked), 200);
}

TEST_F(ConstraintQueueTest, WhatACallerThrowsEndsItsJobAlone) {
  factory->GoOn();
  const auto throws = [] { throw std::bad_alloc(); };
  queue.Make(
      {.spec = {.text = "a"}, .cancelled = [] { return false; }, .done = [&](auto) { throws(); }});
  queue.Make({.spec = {.text = "b"},
              .cancelled =
                  [&] {
                    throws();
                    return false;
                  },
              .done = [](auto) {}});
  EXPECT_EQ(Status(*Ask("next")), 200);
  EXPECT_EQ(factory->n_made, 2);
}

TEST_F(ConstraintQueueTest, ClientsThatHaveGoneMakeRoom) {
  const auto first = Ask("slow");
  WaitForFirst();
  const auto waiting = Fill();
  for (int i = 0; i < 63; ++i) waiting[static_cast<size_t>(i)]->cancelled = true;
  const auto more = Ask("one more");
  factory->GoOn();
  EXPECT_EQ(Status(*waiting.back()), 200);
  EXPECT_EQ(Status(*more), 200);
  EXPECT_EQ(factory->n_made, 3);
}

TEST_F(ConstraintQueueTest, AJobEndsWhenItsClientGoes) {
  factory->GoOn();
  const auto endless = Ask("endless");
  WaitForFirst();
  const auto next = Ask("next");
  endless->cancelled = true;
  EXPECT_EQ(Status(*next), 200);
  EXPECT_EQ(endless.use_count(), 1) << "the job is over";
  EXPECT_NE(endless->promise.get_future().wait_for(std::chrono::seconds(0)),
            std::future_status::ready)
      << "nobody waits for an answer";
}

TEST_F(ConstraintQueueTest, ALongJobGivesWayToOthers) {
  factory->GoOn();
  ConstraintQueue impatient(factory, std::chrono::milliseconds(0));
  const auto long_one = Ask("endless", impatient);
  WaitForFirst();
  EXPECT_EQ(Status(*Ask("next", impatient)), 200);
  WaitUntilBegun(3);  // it is begun again, and not stopped again
  const auto late = Ask("late", impatient);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(factory->n_made, 3);
  impatient.Stop();
  EXPECT_EQ(Status(*long_one), 503);
  EXPECT_EQ(Status(*late), 503);
}

// They would take as long: to give way would be to begin again for nothing.
TEST_F(ConstraintQueueTest, AJobDoesNotGiveWayToItsLike) {
  factory->GoOn();
  ConstraintQueue impatient(factory, std::chrono::milliseconds(0));
  const auto first = Ask("endless", impatient);
  WaitForFirst();
  const auto second = Ask("endless", impatient);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(factory->n_made, 1);
  // Both give way to another.
  EXPECT_EQ(Status(*Ask("next", impatient)), 200);
  WaitUntilBegun(3);
  first->cancelled = true;
  WaitUntilBegun(4);
  second->cancelled = true;
  EXPECT_EQ(Status(*Ask("next", impatient)), 200);
  EXPECT_EQ(factory->n_made, 5) << "each was begun again once";
}

TEST_F(ConstraintQueueTest, AJobThatGaveWayHasItsTurn) {
  ConstraintQueue impatient(factory, std::chrono::milliseconds(0));
  const auto long_one = Ask("endless", impatient);
  WaitForFirst();
  std::vector<std::shared_ptr<Asked>> others;
  others.reserve(12);
  for (int i = 0; i < 12; ++i) others.push_back(Ask("next", impatient));
  factory->GoOn();
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(Status(*others[i]), 200) << i;
  WaitUntilBegun(1 + 8 + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(factory->n_made, 1 + 8 + 1) << "it runs, and four wait";
  long_one->cancelled = true;
  for (size_t i = 8; i < 12; ++i) EXPECT_EQ(Status(*others[i]), 200) << i;
}

TEST_F(ConstraintQueueTest, StopAnswersAll) {
  const auto first = Ask("slow"), second = Ask("next");
  WaitForFirst();
  std::thread stop([this] { queue.Stop(); });
  EXPECT_EQ(Status(*second), 503);
  factory->GoOn();
  stop.join();
  EXPECT_EQ(Status(*first), 503);
  EXPECT_EQ(Status(*Ask("late")), 503);
}

// Requests that come while the server ends, and jobs that are to be begun again then.
TEST_F(ConstraintQueueTest, RequestsDuringStopAreAnswered) {
  factory->GoOn();
  for (int round = 0; round < 20; ++round) {
    auto impatient = std::make_unique<ConstraintQueue>(factory, std::chrono::milliseconds(0));
    std::vector<std::shared_ptr<Asked>> all = {Ask("endless", *impatient)};
    std::thread client([&] {
      for (int i = 0; i < 100; ++i) all.push_back(Ask(i % 2 == 0 ? "next" : "endless", *impatient));
    });
    std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    impatient->Stop();
    client.join();
    for (const auto& asked : all) EXPECT_NE(Status(*asked), 0);
  }
}

TEST_F(ConstraintQueueTest, StopEndsTheRunningJob) {
  const auto endless = Ask("endless"), second = Ask("next");
  WaitForFirst();
  const auto start = std::chrono::steady_clock::now();
  queue.Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline / 2);
  EXPECT_EQ(Status(*endless), 503);
  EXPECT_EQ(Status(*second), 503);
  EXPECT_EQ(factory->n_made, 1);
}

}  // namespace
}  // namespace winnow::server
