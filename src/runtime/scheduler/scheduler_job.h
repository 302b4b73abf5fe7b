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

// Wakes the scheduler's thread. Tickets may outlive the scheduler, and so does this.
struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;

  void Wake() {
    const std::lock_guard lock(mutex);
    woken = true;
    changed.notify_all();
  }
};

// What a ticket and its request share.
struct TicketData {
  uint64_t id = 0;
  std::atomic<bool> cancelled = false;
  std::shared_ptr<Signal> signal = {};
};

// A request on its way through the scheduler. One thread at a time.
struct Job {
  explicit Job(SessionNames& names) : claim(names) {}
  // A request that an exception took out of the scheduler has failed.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  std::shared_ptr<TicketData> ticket = {};
  Request request;
  Clock::TimePoint arrived = {};
  SessionOptions options = {};     // of a sequence of its own
  int64_t max_tokens = 0;          // to generate
  Finish limit = Finish::kLength;  // what ends it there: what was asked for, or the context
  SequenceBytes fresh = {};        // a choice that begins with nothing
  int n_overtaken = 0;             // by later ones
  std::string session = {};        // its named session
  SessionClaim claim;              // on that name
  bool creates = false;            // a new one

  // Once it was started.
  Clock::TimePoint started = {};
  int64_t n_prompt = 0;  // with what the session held
  int64_t n_reused = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
  int n_unfinished = 0;  // choices
  // Of a named session that goes on: what is undone where the request fails. What runs is a copy,
  // or the session itself, which was so long and had tokens that were not read.
  bool works_on_copy = false;
  bool took_replaced = false;  // goes on with what was the session that it replaces
  int64_t n_before = 0;
  std::vector<TokenId> unread_before = {};
  int64_t n_document = 0;  // of the session
  // While it waits: a session is read for it from a file, or cannot be.
  bool loading = false;
  std::optional<RequestError> load_error = {};
  // It does not fit now; the error it gets if no memory is released.
  std::optional<RequestError> too_large = {};
  // A file that its prompt begins as; empty: there is none, or it was read. Found once.
  std::optional<std::string> prefix_file = {};

  // The session is to be left: called once with how the request ended, after its last event.
  std::function<void(const RequestError* error)> on_end = {};
  bool is_queued = false;  // and has not ended

  uint64_t id() const { return ticket->id; }
  bool cancelled() const {
    return ticket->cancelled.load(std::memory_order_relaxed) ||
           (request.cancelled && request.cancelled());
  }
  // A receiver that throws has no memory for the event: its request is cancelled.
  void Tell(const Event& event) const;
  // Tells the last events; the scheduler has released the session.
  void End(const RequestError* error, std::span<const Event> last);
};

}  // namespace winnow::runtime
