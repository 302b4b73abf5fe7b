// Decode steps, and prefill in between.
#include <algorithm>
#include <utility>

#include "runtime/invariants.h"
#include "runtime/scheduler/scheduler_loop.h"
#include "runtime/session/batch_memory.h"

namespace winnow::runtime {

SchedulerLoop::SchedulerLoop(Engine& engine, SchedulerContext context, const SessionFolder* folder)
    : engine_(engine),
      context_(std::move(context)),
      model_bytes_(ModelBytes(engine)),
      waiting_(context_.options.max_overtakes),
      store_(engine, context_.options, folder, context_.names, context_.log, context_.clock),
      memory_(context_,
              model_bytes_ + StepBufferBytes(engine, context_.options.max_running,
                                             context_.options.defaults.row_block),
              active_, store_),
      sessions_(context_, active_, store_, memory_),
      batch_(engine),
      prefill_step_(engine.model()),
      prefill_(prefill_step_),
      pace_(context_.options.max_token_gap_ms, context_.options.defaults.row_block) {}

SchedulerLoop::~SchedulerLoop() = default;

bool SchedulerLoop::Round() {
  if (idle()) return false;
  const int64_t n_before = n_running();
  const size_t n_waited = waiting_.size();
  DropCancelled();
  Decode();
  Admit();
  ReadPrompts();
  CheckBytes();
  // No rounds while requests wait for nothing but files: the end of file work wakes the thread.
  return n_file_work() == 0 || n_before > 0 || n_running() > 0 || waiting_.size() != n_waited;
}

void SchedulerLoop::Choose(std::span<const std::unique_ptr<Sequence>> sequences) {
  const auto n = static_cast<int64_t>(sequences.size());
  engine_.pool().ParallelFor(n,
                             [&](int64_t i, int) { sequences[static_cast<size_t>(i)]->Choose(); });
}

void SchedulerLoop::Decode() {
  if (active_.running.empty()) return;
  const Clock::TimePoint start = context_.clock.now();
  decoding_.clear();
  tokens_.clear();
  outcomes_.assign(active_.running.size(), Result<void>());
  for (const auto& sequence : active_.running) {
    decoding_.push_back(&sequence->session());
    tokens_.push_back(sequence->next());
  }
  batch_.DecodeEach(decoding_, tokens_, outcomes_);
  for (size_t i = 0; i < active_.running.size(); ++i) {
    if (outcomes_[i]) {
      active_.running[i]->AddDecoded();
    } else {
      active_.running[i]->SetError({ErrorKind::kInternal, outcomes_[i].error().message});
    }
  }
  Choose(active_.running);
  last_tokens_ = context_.clock.now();
  counts_.decode_seconds += Milliseconds(start, last_tokens_) / 1000;
  counts_.n_generated_tokens += std::ssize(active_.running);
  pace_.AddDecode(Milliseconds(start, last_tokens_));
  for (const auto& sequence : active_.running) sequence->Deliver(last_tokens_);
  Sweep();
}

void SchedulerLoop::ReadPrompts() {
  if (!prefill_.active()) return;
  const Clock::TimePoint start = context_.clock.now();
  // If no sequence decodes, the gap bounds the time until new requests are looked at.
  const Clock::TimePoint since = active_.running.empty() ? start : last_tokens_;
  for (bool first = true; prefill_.active(); first = false) {
    const int64_t n_rows =
        active_.running.empty() ? context_.options.defaults.row_block : pace_.BlockRows();
    const Clock::TimePoint before = context_.clock.now();
    // Run at least one block: a decode step that takes the whole gap would otherwise starve
    // prompts.
    if (!first && !pace_.Fits(Milliseconds(since, before), n_rows)) break;
    const bool finished = prefill_.Run({.n_blocks = 1, .n_rows = n_rows});
    if (!prefill_.decided()) {
      pace_.AddBlock(prefill_step_.last_block_rows(), Milliseconds(before, context_.clock.now()));
    }
    if (finished) {
      counts_.prefill_seconds += Milliseconds(start, context_.clock.now()) / 1000;
      return FinishPrompts();
    }
    DropCancelled();
  }
  counts_.prefill_seconds += Milliseconds(start, context_.clock.now()) / 1000;
  if (active_.in_prefill.empty()) return;
  NotifyPrefill();
}

void SchedulerLoop::NotifyPrefill() const {
  for (const PrefillEntry& reading : active_.in_prefill) {
    if (reading.sequence == nullptr) continue;
    const auto n_rest = static_cast<double>(reading.rest.size());
    Job& job = reading.sequence->job();
    job.Notify({.kind = Event::Kind::kPrefill,
                .n_done = job.n_reused + static_cast<int64_t>(prefill_.done() * n_rest),
                .n_all = job.n_prompt,
                .n_reused = job.n_reused});
  }
}

// In place: an exception leaves the entries that are not finished to FailAll, with their sessions.
void SchedulerLoop::FinishPrompts() {
  for (size_t i = 0; i < active_.in_prefill.size(); ++i) {
    PrefillEntry& entry = active_.in_prefill[i];
    if (entry.sequence == nullptr) continue;
    if (const auto& failure = prefill_.failure(i)) {
      const RequestError error = {ErrorKind::kInternal, failure->message};
      EndInPrefill(entry, &error);
    } else {
      FinishPrompt(entry);
    }
  }
  active_.in_prefill.clear();
}

// Forks the prompt's sequence into the request's choices, which then run independently.
void SchedulerLoop::FinishPrompt(PrefillEntry& entry) {
  const std::shared_ptr<Job> job = entry.sequence->shared_job();
  const int64_t n_rest = std::ssize(entry.rest);
  counts_.n_prompt_tokens += n_rest;
  entry.sequence->SetPrefill(Milliseconds(prefill_began_, context_.clock.now()), n_rest);
  entry.sequence->AcceptPrompt(entry.sequence->session().tokens());
  job->Notify({.kind = Event::Kind::kStarted,
               .n_prompt = job->n_prompt,
               .n_reused = job->n_reused,
               .reuse = job->reuse});
  if (active_.running.empty()) last_tokens_ = context_.clock.now();
  const size_t n_before = active_.running.size();
  active_.running.reserve(n_before + static_cast<size_t>(job->request.n));
  active_.running.push_back(std::move(entry.sequence));
  for (int i = 1; i < job->request.n; ++i) {
    auto fork = active_.running[n_before]->Fork(i);
    if (!fork) {
      for (; i < job->request.n; ++i) {
        job->Notify({.kind = Event::Kind::kFinished,
                     .choice = i,
                     .finish = Finish::kError,
                     .error = {ErrorKind::kInternal, fork.error().message}});
        --job->n_unfinished;
      }
      break;
    }
    (*fork)->reserved_bytes = entry.bytes.steady;
    active_.running.push_back(std::move(*fork));
  }
  const auto choices =
      std::span<const std::unique_ptr<Sequence>>(active_.running).subspan(n_before);
  if (job->max_tokens == 0) {
    for (const auto& choice : choices) choice->SetFinish(job->limit);
  } else {
    Choose(choices);
    const Clock::TimePoint now = context_.clock.now();
    for (const auto& choice : choices) choice->Deliver(now);
    counts_.n_generated_tokens += std::ssize(choices);
  }
  Sweep();
}

void SchedulerLoop::DropCancelled() {
  for (const auto& sequence : active_.running) {
    if (sequence->job().cancelled()) sequence->SetFinish(Finish::kCancelled);
  }
  Sweep();
  for (size_t i = 0; i < active_.in_prefill.size(); ++i) {
    PrefillEntry& reading = active_.in_prefill[i];
    if (reading.sequence == nullptr || !reading.sequence->job().cancelled()) continue;
    prefill_.Drop(i);
    EndInPrefill(reading, nullptr);
  }
  // If that dropped the last prompt that was not read yet, the pass is over for the others too.
  if (!active_.in_prefill.empty() && !prefill_.active()) FinishPrompts();
  for (const auto& job : waiting_.Take([](const Job& job) { return job.cancelled(); })) {
    NotifyCancelled(*job);
  }
}

// Checks that sequences stay within what they reserved on admission. A request that takes more
// ends; the others go on.
void SchedulerLoop::CheckBytes() {
  Invariants& invariants = engine_.invariants();
  const auto takes = [](int64_t bytes, int64_t reserved, const Error& broken) {
    return RequestError{ErrorKind::kInternal, "a sequence takes " + std::to_string(bytes) +
                                                  " bytes, " + std::to_string(reserved) +
                                                  " were reserved: " + broken.message};
  };
  int64_t working = 0;
  for (const auto& sequence : active_.running) {
    const int64_t bytes = WorkingBytes(sequence->session(), sequence->is_constrained());
    const auto kept = WINNOW_INVARIANT(invariants, bytes <= sequence->reserved_bytes);
    working += bytes;
    if (!kept) sequence->SetError(takes(bytes, sequence->reserved_bytes, kept.error()));
  }
  Sweep();
  for (size_t i = 0; i < active_.in_prefill.size(); ++i) {
    PrefillEntry& reading = active_.in_prefill[i];
    if (reading.sequence == nullptr) continue;
    const int64_t bytes =
        WorkingBytes(reading.sequence->session(), reading.sequence->is_constrained());
    const int64_t reserved = reading.bytes.steady + reading.bytes.prefill;
    const auto kept = WINNOW_INVARIANT(invariants, bytes <= reserved);
    working += bytes;
    if (kept) continue;
    const RequestError error = takes(bytes, reserved, kept.error());
    prefill_.Drop(i);
    EndInPrefill(reading, &error);
  }
  if (!active_.in_prefill.empty() && !prefill_.active()) FinishPrompts();
  working_bytes_ = working;
  CheckLimit();
}

// Checks the memory limit. Only idle sessions can exceed it, as running ones are within their
// reservations; they are evicted.
void SchedulerLoop::CheckLimit() {
  counts_.reserved_bytes = memory_.ReservedBytes();
  const int64_t limit = context_.options.memory_limit_bytes;
  const bool within = limit == 0 || memory_.fixed_bytes() + counts_.reserved_bytes <= limit;
  if (within || over_limit_) {
    over_limit_ = !within;
    return;
  }
  const Error broken = WINNOW_INVARIANT(engine_.invariants(), within).error();
  context_.log.Error(std::to_string(memory_.fixed_bytes() + counts_.reserved_bytes) +
                     " bytes are reserved, the limit is " + std::to_string(limit) + ": " +
                     broken.message);
  over_limit_ = !memory_.Free(0, {});
  counts_.reserved_bytes = memory_.ReservedBytes();
}

SchedulerState SchedulerLoop::state() const {
  SchedulerState state = counts_;
  state.n_running = static_cast<int>(n_running());
  state.n_waiting = static_cast<int>(waiting_.size());
  state.n_idle_sessions = static_cast<int>(store_.sessions().size());
  state.n_saved_sessions = store_.n_saved();
  state.n_broken_invariants = engine_.invariants().n_broken();
  // Computed here, because sessions come and go between rounds too.
  state.live_bytes = (n_running() == 0 ? 0 : working_bytes_) + store_.bytes();
  state.reserved_bytes = memory_.ReservedBytes();
  state.limit_bytes = context_.options.memory_limit_bytes;
  state.model_bytes = model_bytes_;
  state.fixed_bytes = memory_.fixed_bytes();
  const auto add = [&](const Sequence& sequence, bool prefilling, int64_t reserved) {
    const Job& job = sequence.job();
    int64_t n_done = job.n_prompt;
    if (prefilling) {
      n_done =
          job.n_reused +
          static_cast<int64_t>(prefill_.done() * static_cast<double>(job.n_prompt - job.n_reused));
    }
    state.running.push_back({.id = job.id(),
                             .session = job.session,
                             .prefilling = prefilling,
                             .n_prompt = job.n_prompt,
                             .n_done = n_done,
                             .n_generated = sequence.n_generated(),
                             .reserved_bytes = reserved});
  };
  for (const auto& sequence : active_.running) add(*sequence, false, sequence->reserved_bytes);
  for (const PrefillEntry& reading : active_.in_prefill) {
    if (reading.sequence != nullptr) add(*reading.sequence, true, reading.reserved());
  }
  return state;
}

}  // namespace winnow::runtime
