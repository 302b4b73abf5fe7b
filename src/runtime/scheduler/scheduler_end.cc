// How requests end, and what is kept of their sequences.
#include <algorithm>
#include <utility>

#include "runtime/scheduler/scheduler_loop.h"

namespace winnow::runtime {

void SchedulerLoop::Sweep() {
  for (size_t i = 0; i < active_.running.size();) {
    if (!active_.running[i]->finish()) {
      ++i;
      continue;
    }
    End(i);
  }
}

// What throws leaves the sequence, and its session, to FailAll.
void SchedulerLoop::End(size_t index) {
  Sequence& sequence = *active_.running[index];
  const std::shared_ptr<Job> job = sequence.shared_job();
  const auto leave = [&] {
    active_.running.erase(active_.running.begin() + static_cast<std::ptrdiff_t>(index));
  };
  const Finish finish = *sequence.finish();
  if (finish == Finish::kError)
    context_.log.Error("request " + std::to_string(job->id()) + ": " + sequence.error().message);
  if (finish == Finish::kError && job->request.n == 1) {
    const RequestError error = sequence.error();
    ReturnSession(*job, sequence.TakeSession());
    leave();
    --job->n_unfinished;
    ++counts_.n_failed;
    const Event failed = {.kind = Event::Kind::kFailed, .error = error};
    return EndJob(*job, &error, {&failed, 1});
  }
  const Event finished = sequence.Finished();
  if (sequence.choice() == 0) {
    if (finish == Finish::kError) {
      ReturnSession(*job, sequence.TakeSession());
    } else {
      Keep(*job, sequence);
    }
  }
  leave();
  if (--job->n_unfinished > 0) return job->Notify(finished);
  ++(finish == Finish::kCancelled ? counts_.n_cancelled : counts_.n_requests);
  EndJob(*job, nullptr, {&finished, 1});
}

namespace {

// The client sees nothing from the first byte of a stop string on, so it is not part of the
// session's text. Returns the tokens of that text that are not in the cache. What a method has
// evicted cannot come back: there only the last token goes, which is not in the cache yet.
std::vector<TokenId> TruncateToShown(Sequence& sequence) {
  Session& session = sequence.session();
  if (session.compression().method != nullptr) return {};
  const TextStream::BeforeStop shown = sequence.before_stop();
  const int64_t n_prompt = session.n_tokens() - (sequence.n_generated() - 1);
  session.Truncate(n_prompt + shown.n_tokens);
  const tokenizer::MarkedText rest = {shown.rest};
  return session.engine().tokenizer().EncodeAfter(session.tokens().back(), {&rest, 1});
}

}  // namespace

// The sequence of the first choice becomes an idle session.
void SchedulerLoop::Keep(Job& job, Sequence& sequence) {
  if (job.session.empty() && (!job.request.keep || context_.options.max_unnamed == 0)) return;
  IdleSession idle = {
      .name = job.session, .outline = std::move(job.outline), .used = context_.clock.now()};
  if (sequence.finish() == Finish::kStopString) {
    idle.unread = TruncateToShown(sequence);
  } else if (sequence.has_next()) {
    idle.unread.push_back(sequence.next());
  }
  // Replaces an idle session of the same name.
  store_.Put(std::move(idle), sequence.TakeSession());
  store_.DropUnnamed(context_.options.max_unnamed);
}

// The request has failed: restores its session. A named session that it continued is as before: a
// copy is dropped, or the session itself is truncated. Of an unnamed session, or of one that was to
// be replaced, the reused prefix stays.
void SchedulerLoop::ReturnSession(Job& job, std::unique_ptr<Session>&& session) {
  if (job.session.empty() || job.creates) {
    const bool has_name = job.took_over_replaced;
    if (!has_name && (!job.request.keep || context_.options.max_unnamed == 0)) return;
    session->Truncate(job.n_reused);
    if (session->n_tokens() == 0) return;
    store_.Put({.name = has_name ? job.session : "", .used = context_.clock.now()},
               std::move(session));
    return store_.DropUnnamed(context_.options.max_unnamed);
  }
  if (job.works_on_copy) {
    if (IdleSession* idle = store_.Find(job.session)) idle->copied = false;
    return;
  }
  session->Truncate(job.n_before);
  store_.Put({.name = job.session,
              .unread = job.unread_before,
              .outline = job.outline_before,
              .used = context_.clock.now()},
             std::move(session));
}

void SchedulerLoop::EndInPrefill(PrefillEntry& entry, const RequestError* error) {
  const std::shared_ptr<Job> job = entry.sequence->shared_job();
  ReturnSession(*job, entry.sequence->TakeSession());
  entry = {};
  if (error != nullptr) return Fail(*job, *error);
  NotifyCancelled(*job);
}

void SchedulerLoop::Fail(Job& job, const RequestError& error) {
  ++counts_.n_failed;
  job.n_unfinished = 0;
  const Event failed = {.kind = Event::Kind::kFailed, .error = error};
  EndJob(job, &error, {&failed, 1});
  if (error.kind == ErrorKind::kInternal) {
    context_.log.Error("request " + std::to_string(job.id()) + ": " + error.message);
  }
}

void SchedulerLoop::NotifyCancelled(Job& job) {
  ++counts_.n_cancelled;
  job.n_unfinished = 0;
  std::vector<Event> cancelled;
  cancelled.reserve(static_cast<size_t>(job.request.n));
  for (int choice = 0; choice < job.request.n; ++choice) {
    cancelled.push_back(
        {.kind = Event::Kind::kFinished, .choice = choice, .finish = Finish::kCancelled});
  }
  const RequestError error = {ErrorKind::kUnavailable, "the request was cancelled"};
  EndJob(job, &error, cancelled);
}

// Releases the session's name before it sends the last events: a client may send its next request
// as soon as it sees them.
void SchedulerLoop::EndJob(Job& job, const RequestError* error, std::span<const Event> last) {
  if (!job.session.empty()) {
    const bool there = store_.Find(job.session) != nullptr;
    job.claim.Release(there || !job.creates);
    if (there) sessions_.Ended(job.session);
  }
  job.End(error, last);
}

// A request leaves when its session is back in the store: after an exception it is tried again.
void SchedulerLoop::FailAll(const RequestError& error) {
  while (!waiting_.empty()) {
    Job& job = *waiting_.jobs().front();
    if (job.not_begun != nullptr) ReturnSession(job, std::move(job.not_begun));
    job.not_begun = nullptr;
    Fail(*waiting_.TakeFirst(), error);
  }
  prefill_.Abandon();
  while (!active_.in_prefill.empty()) {
    if (active_.in_prefill.back().sequence != nullptr)
      EndInPrefill(active_.in_prefill.back(), &error);
    active_.in_prefill.pop_back();
  }
  while (!active_.running.empty()) {
    Sequence& sequence = *active_.running.back();
    const std::shared_ptr<Job> job = sequence.shared_job();
    if (sequence.choice() == 0 && sequence.has_session()) {
      ReturnSession(*job, sequence.TakeSession());
    }
    active_.running.pop_back();
    // Not n_unfinished: choices may be missing that were being forked.
    const auto is_choice = [&](const auto& other) { return other->shared_job() == job; };
    if (std::ranges::none_of(active_.running, is_choice)) Fail(*job, error);
  }
  store_.EndCopies();
}

}  // namespace winnow::runtime
