#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "winnow/result.h"
#include "winnow/session.h"

namespace winnow {

struct SchedulerOptions {
  int64_t memory_limit_bytes = 0;  // model, buffers and caches together; 0: none
  int max_running = 32;            // prompts that are answered at a time
  int max_waiting = 256;           // more are refused
  double max_token_gap_ms = 250;   // between two tokens of an answer, while a prompt is read
  SessionOptions session = {};     // of prompts that name no other
};

// An answer in the making. Thread-safe.
class Pending {
 public:
  // Waits for the end. A cancelled answer is one too, as far as it came. Errors: the model's
  // numbers are not finite; the scheduler was destroyed.
  Result<Generation> Wait();
  bool done() const;
  void Cancel();  // ends soon with StopReason::kCancelled

 private:
  friend class Scheduler;
  struct Impl;
  explicit Pending(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Answers many prompts at once with one model (Model::NewScheduler), on a thread of its own. The
// bytes of a prompt and its answer are reserved before it starts; it waits until they are free.
// While it exists, nothing else computes with its model: the calls of sessions are kBusy.
// Thread-safe.
class Scheduler {
 public:
  Scheduler(Scheduler&& other) noexcept;
  Scheduler& operator=(Scheduler&& other) noexcept;
  ~Scheduler();  // prompts that are not answered yet end with an error

  // Functions in the options are called on the scheduler's thread and must neither block nor throw,
  // which ends the process. `session.micro_batch` is not used: SchedulerOptions::session has the
  // one of all. Errors, with codes: kInvalid (an empty prompt, one beyond the context, a value out
  // of range), kTooLarge (can never fit into the memory limit), kQueueFull (try again later).
  Result<Pending> Submit(std::string_view prompt, const GenerateOptions& options = {});
  Result<Pending> Submit(std::span<const Token> prompt, const GenerateOptions& options = {});
  Result<Pending> Submit(std::span<const Token> prompt, const GenerateOptions& options,
                         const SessionOptions& session);

  // Bytes that answers in the making have reserved, and that idle sequences take.
  int64_t reserved_bytes() const;

 private:
  friend class Model;
  struct Impl;
  explicit Scheduler(std::unique_ptr<Impl> impl);
  Result<Pending> Submit(std::span<const Token> prompt, const GenerateOptions& options,
                         const SessionOptions& session, bool has_session);
  static Result<Scheduler> Make(std::shared_ptr<const void> model, void* engine,
                                const SchedulerOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace winnow
