// Admission: which request starts, from which session, and whether its bytes are free.
#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/begins_with.h"
#include "runtime/scheduler/scheduler_loop.h"

namespace winnow::runtime {
namespace {

// Maximum total length of prompts that are read together, in tokens: longer ones gain nothing from
// sharing a pass.
constexpr int64_t kSharedTokens = 512;
// Minimum prefix that is copied, in tokens: a shorter one is read as fast.
constexpr int64_t kMinCopied = 16;
// Minimum number of tokens that a saved prefix must add to those in memory: fewer are read as fast
// from the prompt as from a file.
constexpr int64_t kMinRead = 64;

bool Evicts(const Session& session) { return session.compression().method != nullptr; }

}  // namespace

SchedulerLoop::Answer SchedulerLoop::WaitForMemory(Job& job, int64_t n_bytes) const {
  job.too_large = {
      ErrorKind::kTooLarge,
      "the request needs " +
          BytesAndLimit(n_bytes + memory_.fixed_bytes(), context_.options.memory_limit_bytes) +
          " and sessions that cannot be evicted take " + std::to_string(store_.bytes()) + " bytes"};
  return Answer::kWaits;
}

// One prompt is in prefill at a time, or several short ones that share a pass.
void SchedulerLoop::Admit() {
  if (!active_.in_prefill.empty()) return;
  const auto alone = [&](const std::shared_ptr<Job>& job) {
    return Start(job, std::numeric_limits<int64_t>::max());
  };
  while (active_.in_prefill.empty()) {
    if (waiting_.Offer(alone, /*ignore_overtake_limit=*/is_stuck())) continue;
    // When nothing runs, memory never becomes free: fail the first request that does not fit.
    if (!is_stuck() || !FailFirstTooLarge()) break;
  }
  const auto n_tokens = [&] {
    int64_t n = 0;
    for (const PrefillEntry& reading : active_.in_prefill) n += std::ssize(reading.rest);
    return n;
  };
  while (!active_.in_prefill.empty() && n_tokens() < kSharedTokens &&
         waiting_.OfferFirst([&](const std::shared_ptr<Job>& job) {
           return Start(job, kSharedTokens - n_tokens());
         })) {
  }
  if (active_.in_prefill.empty()) return;
  std::vector<Prefill::Prompt> prompts;
  for (const PrefillEntry& reading : active_.in_prefill) {
    prompts.push_back({.session = &reading.sequence->session(), .tokens = reading.rest});
  }
  prefill_began_ = context_.clock.now();
  prefill_.Begin(prompts);
  if (!prefill_.active()) FinishPrompts();
}

bool SchedulerLoop::FailFirstTooLarge() {
  bool found = false;
  const auto failed = waiting_.Take([&](const Job& job) {
    if (found || !job.too_large) return false;
    found = true;
    return true;
  });
  for (const auto& job : failed) Fail(*job, RequestError(*job->too_large));
  return found;
}

SchedulerLoop::Answer SchedulerLoop::Start(const std::shared_ptr<Job>& job, int64_t max_rest) {
  if (job->cancelled()) {
    NotifyCancelled(*job);
    return Answer::kGone;
  }
  job->too_large.reset();
  if (n_running() + job->request.n > context_.options.max_running) return Answer::kWaits;
  auto found = FindSource(job);
  if (const auto* error = std::get_if<RequestError>(&found)) {
    Fail(*job, *error);
    return Answer::kGone;
  }
  if (const auto* answer = std::get_if<Answer>(&found)) return *answer;
  Source source = std::get<Source>(std::move(found));
  if (std::ssize(source.rest) > max_rest) return Answer::kWaits;
  const Result<SequenceBytes> bytes = PlanBytes(*job, source);
  if (!bytes) {
    Fail(*job, {ErrorKind::kInvalid, bytes.error().message, "prompt"});
    return Answer::kGone;
  }
  int64_t needed = job->request.n * bytes->steady + bytes->prefill;
  if (source.idle != nullptr) {
    // A copy has the full size until it is truncated.
    needed = source.copy ? std::max(needed, source.idle->bytes) : needed - source.idle->bytes;
  }
  if (FreeMemoryFor(*job, needed, source.idle)) {
    Begin(job, std::move(source), *bytes);
    return Answer::kStarted;
  }
  if (DropReplaced(*job)) return Start(job, max_rest);
  const bool may_read_all = job->session.empty() || job->creates;
  const bool may_wait = n_running() > 0 || n_file_work() > 0;
  const int64_t alone = job->request.n * job->fresh.steady + job->fresh.prefill;
  if (may_wait || source.idle == nullptr || !may_read_all || !FreeMemoryFor(*job, alone)) {
    return WaitForMemory(*job, needed);
  }
  // A copy does not fit beside the session that shares the prefix: read the whole prompt.
  Begin(job, {.rest = job->request.prompt}, job->fresh);
  return Answer::kStarted;
}

IdleSession* SchedulerLoop::FindNamed(const std::shared_ptr<Job>& job, Answer& answer) {
  const std::string& id = job->session;
  IdleSession* idle = store_.Find(id);
  if (idle != nullptr || job->loading || job->load_error) return idle;
  if (!sessions_.is_loading(id)) {
    const auto max_bytes = store_.ReadMaxBytes(id);
    if (max_bytes && !FreeMemoryFor(*job, *max_bytes)) {
      answer = WaitForMemory(*job, *max_bytes);
      return nullptr;
    }
  }
  job->loading = true;
  sessions_.Load(id, [job](const RequestError* error) {
    job->loading = false;
    if (error == nullptr) return;
    job->load_error = *error;
    // If the file cannot be read, the request itself is not invalid.
    if (error->kind == ErrorKind::kInvalid) job->load_error->kind = ErrorKind::kNotFound;
  });
  return store_.Find(id);
}

std::variant<SchedulerLoop::Source, RequestError, SchedulerLoop::Answer> SchedulerLoop::FindSource(
    const std::shared_ptr<Job>& shared_job) {
  Job& job = *shared_job;
  if (job.session.empty() || job.creates) {
    if (WaitsForSavedPrefix(shared_job)) return Answer::kWaits;
    return PrefixSource(job);
  }
  Answer answer = Answer::kWaits;
  IdleSession* idle = FindNamed(shared_job, answer);
  if (job.load_error) return *job.load_error;
  if (idle == nullptr) return answer;
  if (job.request.options && !SameCache(job.options, idle->session->options())) {
    return RequestError{ErrorKind::kInvalid,
                        "session " + job.session + " has method " +
                            ReportCache(*idle->session).method +
                            " and its own budget and types, the request has others; a session "
                            "keeps those it was created with"};
  }
  if (job.request.begins_with_session && !BeginsWith(job.request.prompt, idle->session->tokens())) {
    return RequestError{ErrorKind::kBusy, "session " + job.session +
                                              " was continued by another request meanwhile: send "
                                              "the request again"};
  }
  return NamedSource(job, *idle);
}

SchedulerLoop::Source SchedulerLoop::NamedSource(Job& job, IdleSession& idle) const {
  const std::vector<TokenId>& prompt = job.request.prompt;
  const std::span<const TokenId> text = idle.session->tokens();
  Source source = {.idle = &idle,
                   // Eviction cannot be undone: work on a copy, so that the session is unchanged if
                   // the request fails.
                   .copy = Evicts(*idle.session) || store_.saving(idle),
                   .n_tokens = std::ssize(text),
                   .reuse = Evicts(*idle.session) ? PrefixReuse::kCompressed : PrefixReuse::kExact};
  if (!text.empty() && BeginsWith(prompt, text)) {
    source.rest.assign(prompt.begin() + std::ssize(text), prompt.end());
  } else {
    source.rest = idle.unread;
    source.rest.insert(source.rest.end(), prompt.begin(), prompt.end());
  }
  if (source.rest.empty() && idle.session->logits().empty() && !text.empty()) {
    // The logits after the last token are gone: read that token again.
    source.rest.push_back(text.back());
    --source.n_tokens;
  }
  return source;
}

bool SchedulerLoop::Replaces(const Job& job, const IdleSession& idle) const {
  return job.request.replaces && idle.name == job.session && !Evicts(*idle.session) &&
         !store_.saving(idle);
}

bool SchedulerLoop::DropReplaced(const Job& job) {
  if (!job.request.replaces || n_running() > 0 || n_file_work() > 0) return false;
  IdleSession* replaced = store_.Find(job.session);
  if (replaced != nullptr) store_.Drop(*replaced);
  return replaced != nullptr;
}

SchedulerLoop::Source SchedulerLoop::PrefixSource(Job& job) {
  const std::vector<TokenId>& prompt = job.request.prompt;
  Source source;
  if (job.request.reuse_prefix) {
    const SessionStore::Prefix prefix =
        store_.FindPrefix(prompt, job.options, job.request.reuse_across_questions);
    if (prefix.idle != nullptr) {
      // Most conversations continue where they ended: their session is taken over. A session that
      // another request may still want is copied.
      const auto [n_tokens, reuse] = prefix.match;
      const bool whole = n_tokens == prefix.idle->session->n_tokens();
      const bool is_replaced = Replaces(job, *prefix.idle);
      const bool is_wanted =
          (!prefix.idle->name.empty() && !is_replaced) || !prefix.idle->read_from.empty();
      const bool copy = is_wanted || prefix.idle->copied || (!whole && !is_replaced);
      if (!copy || n_tokens >= kMinCopied) {
        source = {.idle = prefix.idle, .copy = copy, .n_tokens = n_tokens, .reuse = reuse};
      }
    }
  }
  source.rest.assign(prompt.begin() + static_cast<std::ptrdiff_t>(source.n_tokens), prompt.end());
  return source;
}

// The session read from the file gets no name: the named session may be in use, or may have changed
// since it was saved.
bool SchedulerLoop::WaitsForSavedPrefix(const std::shared_ptr<Job>& shared_job) {
  Job& job = *shared_job;
  const Request& request = job.request;
  if (job.loading) return true;
  if (!request.reuse_prefix || context_.options.max_unnamed == 0) return false;
  if (!job.prefix_file) {
    const int64_t n_known =
        store_.FindPrefix(request.prompt, job.options, request.reuse_across_questions)
            .match.n_tokens;
    job.prefix_file = store_.FindSavedPrefix(request.prompt, job.options,
                                             request.reuse_across_questions, n_known + kMinRead);
  }
  if (job.prefix_file->empty()) return false;
  const std::string file = *job.prefix_file;
  const auto max_bytes = store_.ReadMaxBytes(file);
  // Room for two: the session stays while the request works on a copy of it.
  const int64_t with_copy = max_bytes ? *max_bytes + *max_bytes : 0;
  const bool fits = max_bytes && memory_.Free(with_copy, {.claimed = true});
  if (max_bytes && !fits && memory_.fits_alone(with_copy) && memory_.will_be_freed()) return true;
  job.prefix_file->clear();
  if (!fits) return false;
  job.loading = true;
  sessions_.LoadPrefix(file, [this, shared_job, file](const RequestError* error) {
    shared_job->loading = false;
    if (error == nullptr) return;
    if (error->kind == ErrorKind::kInvalid) store_.FileChanged(file);
    context_.log.Warning("a prompt is read that " + file + " begins with: " + error->message);
  });
  return job.loading;
}

Result<SequenceBytes> SchedulerLoop::PlanBytes(Job& job, const Source& source) const {
  // A session without a method that is truncated to a prefix takes the bytes of a new one.
  if (source.idle == nullptr ||
      ((job.session.empty() || job.creates) && !Evicts(*source.idle->session))) {
    return job.fresh;
  }
  const Session& session = *source.idle->session;
  const int64_t n_rest = std::ssize(source.rest);
  WINNOW_TRY(CheckPromptFits(session, n_rest));
  const int64_t wanted =
      job.request.max_tokens >= 0 ? job.request.max_tokens : context_.options.default_max_tokens;
  job.max_tokens = TokensToGenerate(session, n_rest, wanted);
  job.limit = job.max_tokens == wanted ? Finish::kLength : Finish::kContext;
  return PlanSequence(session, n_rest, std::max<int64_t>(0, job.max_tokens - 1),
                      job.request.constraint != nullptr);
}

Result<std::unique_ptr<Session>> SchedulerLoop::TakeSession(Job& job, const Source& source) {
  if (job.request.outline) job.outline = *job.request.outline;
  if (source.idle == nullptr) return Session::Make(engine_, job.options);
  if (!job.session.empty() && !job.creates) {
    job.outline_before = source.idle->outline;
    if (!job.request.outline) job.outline = {.n_document = source.idle->outline.n_document};
  }
  std::unique_ptr<Session> session;
  if (source.copy) {
    WINNOW_ASSIGN(session, source.idle->session->Fork());
    source.idle->used = context_.clock.now();
    if (!job.session.empty() && !job.creates) {
      job.works_on_copy = true;
      source.idle->copied = true;
    }
  } else {
    job.took_over_replaced = Replaces(job, *source.idle);
    job.n_before = source.n_tokens;
    // A token that the request reads again is unread until then.
    const auto again = source.idle->session->tokens().subspan(static_cast<size_t>(source.n_tokens));
    job.unread_before.assign(again.begin(), again.end());
    job.unread_before.insert(job.unread_before.end(), source.idle->unread.begin(),
                             source.idle->unread.end());
    session = store_.Take(*source.idle).session;
  }
  return session;
}

void SchedulerLoop::Begin(const std::shared_ptr<Job>& job, Source source,
                          const SequenceBytes& bytes) {
  job->started = context_.clock.now();
  job->n_reused = source.n_tokens;
  job->reuse = source.n_tokens == 0 ? PrefixReuse::kNone : source.reuse;
  job->n_prompt = source.n_tokens + std::ssize(source.rest);
  job->n_unfinished = job->request.n;
  auto session = TakeSession(*job, source);
  if (!session) return Fail(*job, {ErrorKind::kInternal, session.error().message});
  try {
    active_.in_prefill.reserve(active_.in_prefill.size() + 1);
    auto sequence = MakeSequence(job, source, *session);
    if (!sequence) {
      ReturnSession(*job, std::move(*session));
      return Fail(*job, {ErrorKind::kInvalid, sequence.error().message});
    }
    (*sequence)->reserved_bytes = bytes.steady;
    active_.in_prefill.push_back(
        {.sequence = std::move(*sequence), .rest = std::move(source.rest), .bytes = bytes});
  } catch (const std::exception&) {
    job->not_begun = std::move(*session);  // for FailAll: returning it may throw again
    throw;
  }
  counts_.max_sequence_bytes = std::max(counts_.max_sequence_bytes, bytes.steady);
  if (!job->request.reuse_prefix || (!job->session.empty() && !job->creates)) return;
  counts_.n_prefix_queries += job->n_prompt;
  counts_.n_prefix_hits += source.n_tokens;
}

Result<std::unique_ptr<Sequence>> SchedulerLoop::MakeSequence(const std::shared_ptr<Job>& job,
                                                              const Source& source,
                                                              std::unique_ptr<Session>& session) {
  if (!Evicts(*session)) session->Truncate(source.n_tokens);
  WINNOW_TRY(session->Reserve(std::ssize(source.rest), std::max<int64_t>(0, job->max_tokens - 1)));
  return Sequence::Make(job, 0, std::move(session));
}

}  // namespace winnow::runtime
