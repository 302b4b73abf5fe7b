#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/session/batch_memory.h"
#include "runtime/store/session_file.h"
#include "runtime/testing/scheduler_sessions_run.h"

namespace winnow::runtime::testing {

// A disk that is busy until Free.
class SlowDisk {
 public:
  // File work waits here, with a time limit, so that a failed test does not hang.
  void Wait() {
    busy_.Set();
    EXPECT_TRUE(free_.WaitFor()) << "the disk was never free";
  }
  bool WaitUntilBusy() { return busy_.WaitFor(); }
  void Free() { free_.Set(); }

 private:
  class Flag {
   public:
    void Set() {
      const std::lock_guard lock(mutex_);
      is_set_ = true;
      changed_.notify_all();
    }
    bool WaitFor() {
      std::unique_lock lock(mutex_);
      return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return is_set_; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_set_ = false;
  };
  Flag busy_, free_;
};

// A scheduler with its thread, whose I/O thread waits for disk_.
class SchedulerFilesTest : public SchedulerSessionsTest {
 protected:
  // The I/O thread must end before the disk is destroyed, also after a failure.
  ~SchedulerFilesTest() override {
    disk_->Free();
    scheduler_.reset();
  }
  void MakeSlow(int64_t limit_bytes = 0, int max_waiting = 256) {
    SchedulerOptions options = WithFolder();
    options.defaults.on_projections = {};
    options.max_running = 2;
    options.max_waiting = max_waiting;
    if (limit_bytes > 0) {
      options.memory_limit_bytes = ModelBytes(*engine_) +
                                   StepBufferBytes(*engine_, 2, options.defaults.row_block) +
                                   limit_bytes;
    }
    options.on_file_work = [this] { disk_->Wait(); };
    Make(options);
    scheduler_->Start();
  }
  using Pending = std::future<Outcome>;
  template <class Operation>
  Pending Begin(const Operation& operation) {
    auto promise = std::make_shared<std::promise<Outcome>>();
    Pending pending = promise->get_future();
    operation([promise](Outcome outcome) { promise->set_value(std::move(outcome)); });
    return pending;
  }
  Pending BeginCreate(const std::string& id, int n, std::optional<SessionOptions> options = {}) {
    Request document = MakeRequest(Prompt(n, 1), 0);
    document.options = std::move(options);
    return Begin([&](auto done) { scheduler_->CreateSession(id, std::move(document), done); });
  }
  Pending BeginSave(const std::string& id, const std::string& file) {
    return Begin([&](auto done) { scheduler_->SaveSession(id, file, done); });
  }
  Pending BeginRestore(const std::string& id, const std::string& file) {
    return Begin([&](auto done) { scheduler_->RestoreSession(id, file, done); });
  }
  Pending BeginDelete(const std::string& id) {
    return Begin([&](auto done) { scheduler_->DeleteSession(id, done); });
  }
  static bool IsDone(const Pending& pending) {
    return pending.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
  }
  // The error message; "" if it succeeded.
  static std::string End(Pending& pending) {
    if (!IsDone(pending)) return "not done";
    return Problem(pending.get());
  }
  static std::optional<ErrorKind> EndKind(Pending& pending) {
    if (!IsDone(pending)) return std::nullopt;
    const Outcome outcome = pending.get();
    const auto* error = std::get_if<RequestError>(&outcome);
    return error == nullptr ? std::nullopt : std::optional(error->kind);
  }
  // Tokens of a response; empty if it failed.
  std::future<std::vector<TokenId>> BeginAnswer(const std::string& session, int n_prompt,
                                                int64_t max_tokens) {
    Request request = MakeRequest(Prompt(n_prompt, 2), max_tokens);
    if (!session.empty()) request.session = session;
    auto promise = std::make_shared<std::promise<std::vector<TokenId>>>();
    auto tokens = std::make_shared<std::vector<TokenId>>();
    auto answer = promise->get_future();
    request.on_event = [promise, tokens](const Event& event) {
      if (event.kind == Event::Kind::kToken) tokens->push_back(event.token);
      if (event.kind == Event::Kind::kFinished) promise->set_value(*tokens);
      if (event.kind == Event::Kind::kFailed) promise->set_value({});
    };
    auto outcome = scheduler_->Submit(std::move(request));
    if (std::holds_alternative<RequestError>(outcome)) promise->set_value({});
    return answer;
  }
  static std::vector<TokenId> End(std::future<std::vector<TokenId>> answer) {
    const auto ready = answer.wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    return ready ? answer.get() : std::vector<TokenId>();
  }
  // Calls Stop while the disk is busy, and frees the disk once stopping has begun.
  void StopWhileBusy() {
    std::thread frees([this] {
      const auto stopping = [this] {
        // Before that, the request is refused for its empty prompt.
        const auto outcome = scheduler_->Submit(Request());
        return std::get<RequestError>(outcome).kind == ErrorKind::kUnavailable;
      };
      while (!stopping()) std::this_thread::yield();
      disk_->Free();
    });
    scheduler_->Stop();
    frees.join();
  }
  // Waits until all calls made before have begun.
  void WaitForCommands() {
    std::promise<void> listed;
    scheduler_->ListSessions([&](const auto&) { listed.set_value(); });
    listed.get_future().wait();
  }
  std::optional<KeptTokens> Kept(const std::string& id) {
    std::promise<std::optional<KeptTokens>> promise;
    scheduler_->KeptPositions(id, false, [&](const auto& outcome) {
      const auto* kept = std::get_if<KeptTokens>(&outcome);
      promise.set_value(kept == nullptr ? std::nullopt : std::optional(*kept));
    });
    return promise.get_future().get();
  }
  // nullopt: no error.
  std::optional<ErrorKind> KeptProblem(const std::string& id) {
    std::promise<std::optional<ErrorKind>> promise;
    scheduler_->KeptPositions(id, false, [&](const auto& outcome) {
      const auto* error = std::get_if<RequestError>(&outcome);
      promise.set_value(error == nullptr ? std::nullopt : std::optional(error->kind));
    });
    return promise.get_future().get();
  }
  int64_t TokensInFile(const std::string& name) {
    const auto info = ReadSessionInfo(folder_ + "/" + name + ".session");
    return info ? info->n_tokens : -1;
  }

  std::unique_ptr<SlowDisk> disk_ = std::make_unique<SlowDisk>();
};

class SchedulerReadingTest : public SchedulerFilesTest {
 protected:
  // Makes a scheduler with a saved session "a" of 60 tokens, on a slow disk.
  void MakeWithFile(int64_t limit_bytes = 0) {
    Make(WithFolder());
    ASSERT_EQ(Problem(Create("a", Prompt(60, 1))), "");
    ASSERT_EQ(Problem(Save("a", "a")), "");
    scheduler_.reset();
    MakeSlow(limit_bytes);
  }
  std::future<int64_t> BeginKept(const std::string& id) {
    auto promise = std::make_shared<std::promise<int64_t>>();
    scheduler_->KeptPositions(id, false, [promise](const auto& outcome) {
      const auto* kept = std::get_if<KeptTokens>(&outcome);
      promise->set_value(kept == nullptr ? -1 : std::ssize(kept->tokens));
    });
    return promise->get_future();
  }
};

}  // namespace winnow::runtime::testing
