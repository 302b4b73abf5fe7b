#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/scheduler/scheduler_types.h"
#include "runtime/store/session_names.h"

namespace winnow::runtime {

// Wakes the scheduler's thread. Held by shared_ptr: tickets may outlive the scheduler.
struct WakeSignal {
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;

  void Wake() {
    const std::lock_guard lock(mutex);
    woken = true;
    changed.notify_all();
  }
};

// Shared by a ticket and its request.
struct TicketData {
  uint64_t id = 0;
  std::atomic<bool> cancelled = false;
  std::shared_ptr<WakeSignal> signal = {};
};

// A request on its way through the scheduler. Not thread-safe.
struct Job {
  explicit Job(SessionNames& names) : claim(names) {}
  // Fails the request if an exception took it out of the scheduler before its end.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::shared_ptr<TicketData> ticket = {};
  Request request;
  Clock::TimePoint arrived = {};
  SessionOptions options = {};     // of a new sequence for this request
  int64_t max_tokens = 0;          // to generate
  Finish limit = Finish::kLength;  // reason for max_tokens: the request, or the context
  SequenceBytes fresh = {};        // of one choice without a reused prefix
  int n_overtaken = 0;             // by later requests
  std::string session = {};        // the named session that it has claimed
  SessionClaim claim;              // on the name of `session`
  bool creates = false;            // it creates `session`, or replaces it

  // Set when it starts.
  Clock::TimePoint started = {};
  int64_t n_prompt = 0;  // including the tokens the session held
  int64_t n_reused = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
  int n_unfinished = 0;  // choices
  // Taken for the request, which then did not begin because of an exception.
  std::unique_ptr<Session> not_begun = {};
  // To undo a failed request that continues a named session: it works on a copy, or on the session
  // itself, which then gets back the n_before tokens that it does not read again, unread_before and
  // outline_before.
  bool works_on_copy = false;
  bool took_over_replaced = false;  // it took over the session that it replaces
  int64_t n_before = 0;
  std::vector<TokenId> unread_before = {};
  TextOutline outline_before = {};
  TextOutline outline = {};  // of the session when the request has succeeded
  // While it waits: a session is being read from a file for it (loading), or could not be read
  // (load_error).
  bool loading = false;
  std::optional<RequestError> load_error = {};
  // Set while it does not fit in memory: the error it gets if no memory is released.
  std::optional<RequestError> too_large = {};
  // The saved session that shares a prefix with the prompt; empty: none, or it was read. Looked up
  // once.
  std::optional<std::string> prefix_file = {};

  // Called once, after the last event, with how the request ended (Scheduler::CreateSession).
  std::function<void(const RequestError* error)> on_end = {};
  bool receiver_failed = false;  // on_event threw
  bool is_queued = false;        // until End

  uint64_t id() const { return ticket->id; }
  bool cancelled() const {
    return ticket->cancelled.load(std::memory_order_relaxed) ||
           (request.cancelled && request.cancelled());
  }
  // Calls on_event. If that throws (no memory for the event), cancels the request: it then gets
  // only the events that end it.
  void Notify(const Event& event);
  // Sends the last events, then calls on_end. The scheduler has released the session.
  void End(const RequestError* error, std::span<const Event> last);
};

}  // namespace winnow::runtime
