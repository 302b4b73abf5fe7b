#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/text_stream.h"
#include "runtime/scheduler/scheduler_job.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

CacheReport ReportCache(const Session& session);

// One choice of a running request: its session and the state that decides its next token (sampler,
// constraint, stop strings).
class Sequence {
 public:
  // Error: a sampling value out of range. Takes `session` only if it succeeds.
  static Result<std::unique_ptr<Sequence>> Make(std::shared_ptr<Job> job, int choice,
                                                std::unique_ptr<Session>&& session);
  // Another choice that continues the same prompt. Requires: nothing was generated yet. Error: out
  // of memory.
  Result<std::unique_ptr<Sequence>> Fork(int choice) const;

  Job& job() const { return *job_; }
  const std::shared_ptr<Job>& shared_job() const { return job_; }
  int choice() const { return choice_; }
  Session& session() const { return *session_; }
  // The session leaves with the move from the result.
  std::unique_ptr<Session>&& TakeSession() { return std::move(session_); }
  bool has_session() const { return session_ != nullptr; }
  // Requires: finish() == kStopString, and Finished was called.
  TextStream::BeforeStop before_stop() const { return text_.before_stop(); }
  // Bytes reserved for it until it ends.
  int64_t reserved_bytes = 0;

  // Shows the prompt to the sampler's penalties. Call before the first Choose.
  void AcceptPrompt(std::span<const TokenId> tokens);
  // Chooses the next token from the session's logits. Several threads may call it at the same time
  // on different sequences.
  void Choose();
  // Sends the chosen token to the request. finish() then says whether it was the last one.
  void Deliver(Clock::TimePoint now);
  // The last chosen token, which is not in the cache yet.
  TokenId next() const { return token_; }
  bool has_next() const { return n_generated_ > 0; }
  bool is_constrained() const { return constraint_ != nullptr; }

  const std::optional<Finish>& finish() const { return finish_; }
  // Set together with finish() == kError.
  const RequestError& error() const { return error_; }
  void SetFinish(Finish finish) { finish_ = finish; }
  void SetError(RequestError error);
  // The last event of this choice. Call once. Requires: finish(), and the session was not taken.
  Event Finished();

  int64_t n_generated() const { return n_generated_; }
  void AddDecoded() { ++timings_.n_decode; }
  void SetPrefill(double ms, int64_t n_tokens);

 private:
  Sequence(std::shared_ptr<Job> job, int choice, std::unique_ptr<Session>&& session,
           Sampler sampler);
  bool StopAtProblem();  // true: the constraint cannot go on, and an error is set

  std::shared_ptr<Job> job_;
  int choice_;
  std::unique_ptr<Session> session_;
  Sampler sampler_;
  TextStream text_;
  std::unique_ptr<TokenConstraint> constraint_;
  std::vector<float> masked_;  // logits under the constraint
  TokenId token_ = 0;
  float log_probability_ = 0;
  std::vector<TokenProbability> top_;
  std::optional<Finish> finish_;
  RequestError error_;
  int64_t n_generated_ = 0;
  GenerateTimings timings_;
  Clock::TimePoint first_token_, last_token_;
};

}  // namespace winnow::runtime
