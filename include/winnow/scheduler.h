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
  int64_t memory_limit_bytes = 0;  // limit of model, buffers and caches together; 0: none
  int max_running = 32;            // sequences in prefill or decode at a time
  int max_waiting = 256;           // length of the queue; further prompts are rejected (kQueueFull)
  double max_token_gap_ms = 250;   // target between two tokens of a response while a prompt is read
  SessionOptions session = {};     // for prompts submitted without session options
};

// A response that is still being generated. A handle: copies share it, and dropping it cancels
// nothing. Thread-safe.
class Pending {
 public:
  // Blocks until the response is complete. A cancelled response is returned as far as it was
  // generated (StopReason::kCancelled). Errors: the logits are not finite, or the constraint or
  // bias allows no token; the scheduler was destroyed.
  Result<Generation> Wait();
  bool done() const;
  void Cancel();  // does not wait; the response ends soon with StopReason::kCancelled

 private:
  friend class Scheduler;
  struct Impl;
  explicit Pending(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

// Continuous batching: generates the responses to many prompts at once with one model
// (Model::NewScheduler), on its own thread. A prompt starts when the bytes of the prompt and its
// response can be reserved. While a scheduler exists, it alone computes with its model: calls of
// sessions return kBusy. Keeps the model alive. Thread-safe.
class Scheduler {
 public:
  Scheduler(Scheduler&& other) noexcept;
  Scheduler& operator=(Scheduler&& other) noexcept;
  ~Scheduler();  // prompts that are not finished yet end with an error (kUnavailable)

  // Queues a prompt and returns at once. The functions in `options` are called on the scheduler's
  // thread. They must not block, and must not throw: an exception ends the process.
  // `session.micro_batch` is ignored: that of SchedulerOptions::session holds for all prompts.
  // Errors: kInvalid (an empty prompt, one longer than the context, a value out of range),
  // kTooLarge (can never fit into the memory limit), kQueueFull (try again later).
  Result<Pending> Submit(std::string_view prompt, const GenerateOptions& options = {});
  Result<Pending> Submit(std::span<const Token> prompt, const GenerateOptions& options = {});
  Result<Pending> Submit(std::span<const Token> prompt, const GenerateOptions& options,
                         const SessionOptions& session);

  // Bytes reserved for responses in progress, plus those of idle sequences kept for prefix reuse.
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
