// Checks before a request is queued, in the caller's thread.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/scheduler/scheduler_data.h"

namespace winnow::runtime {
namespace {

RequestError Invalid(std::string message, std::string param = {}) {
  return {ErrorKind::kInvalid, std::move(message), std::move(param)};
}

// The field to name when a prompt does not fit: it is too long, or the request's budget does not
// suit it.
std::string WrongField(const Error& error, const Request& request) {
  if (!request.options) return "prompt";
  const CompressionOptions& budget = request.options->compression;
  if (error.code == ErrorCode::kTooLarge && budget.memory_bytes != 0) return "memory_bytes";
  if (error.code == ErrorCode::kInvalid && budget.ratio != 0) return "ratio";
  if (error.code == ErrorCode::kInvalid && budget.size != 0) return "size";
  return "prompt";
}

RequestError InvalidName(const std::string& name) {
  return Invalid("invalid session name (" + std::to_string(name.size()) +
                     " characters): use 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a dot",
                 "session");
}

RequestError Busy(const std::string& name) {
  return {ErrorKind::kBusy, "session " + name + " is in use by another request"};
}

RequestError QueueFull(int64_t n_queued) {
  return {ErrorKind::kQueueFull, "the queue is full: " + std::to_string(n_queued) +
                                     " requests are waiting; try again later"};
}

}  // namespace

std::optional<RequestError> Scheduler::Data::ClaimExisting(const std::string& name,
                                                           SessionClaim& claim) const {
  using Outcome = SessionNames::Outcome;
  if (!IsSessionName(name)) return InvalidName(name);
  Outcome outcome = claim.Take(name);
  // Another process may have saved it.
  if (outcome == Outcome::kUnknown && folder != nullptr && folder->Has(name)) {
    outcome = claim.TakeAny(name, /*exists=*/true);
  }
  switch (outcome) {
    case Outcome::kClaimed:
      return std::nullopt;
    case Outcome::kBusy:
      return Busy(name);
    case Outcome::kClosed:
      return RequestError{ErrorKind::kNotFound,
                          "session " + name +
                              " was closed because its memory was needed; with a session path such "
                              "sessions are saved to disk instead"};
    default:
      return RequestError{ErrorKind::kNotFound, "there is no session " + name};
  }
}

std::optional<RequestError> Scheduler::Data::ClaimNew(const std::string& name,
                                                      SessionClaim& claim) const {
  using Outcome = SessionNames::Outcome;
  if (!IsSessionName(name)) return InvalidName(name);
  const RequestError exists = {
      ErrorKind::kBusy,
      "session " + name + " already exists; delete it first, or choose another name"};
  // Another process may have saved it.
  if (folder != nullptr && folder->Has(name)) return exists;
  switch (claim.TakeNew(name)) {
    case Outcome::kClaimed:
      return std::nullopt;
    case Outcome::kBusy:
      return Busy(name);
    default:
      return exists;
  }
}

std::optional<RequestError> Scheduler::Data::ClaimToReplace(const std::string& name,
                                                            SessionClaim& claim) const {
  using Outcome = SessionNames::Outcome;
  if (!IsSessionName(name)) return InvalidName(name);
  if (claim.Take(name) == Outcome::kClaimed) return std::nullopt;
  if (claim.TakeNew(name) == Outcome::kClaimed) return std::nullopt;
  return Busy(name);
}

std::optional<RequestError> Scheduler::Data::CheckQueue() {
  const std::lock_guard lock(mutex);
  if (draining || stopped) {
    return ShuttingDown();
  }
  if (n_queued < options.max_waiting) return std::nullopt;
  return QueueFull(n_queued);
}

// Everything that can be checked outside the scheduler's thread.
std::variant<std::shared_ptr<Job>, RequestError> Scheduler::Data::Check(Request request) {
  auto job = std::make_shared<Job>(names);
  job->ticket = std::make_shared<TicketData>();
  job->arrived = clock.now();
  const int64_t vocabulary = engine.model().hyperparameters().vocabulary;
  if (request.n < 1 || request.n > options.max_running) {
    return Invalid("n is " + std::to_string(request.n) + ", expected 1 to " +
                       std::to_string(options.max_running),
                   "n");
  }
  if (request.n_probs > vocabulary) {
    return Invalid("n_probs is " + std::to_string(request.n_probs) + ", the vocabulary has " +
                   std::to_string(vocabulary) + " tokens");
  }
  if (request.session && !IsSessionName(*request.session)) return InvalidName(*request.session);
  if (request.session && request.replaces) {
    return Invalid("a request may continue a session or replace one, not both", "session");
  }
  if (request.prompt.empty() && !request.session) {
    return Invalid("the prompt is empty: there is nothing to continue", "prompt");
  }
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < vocabulary) continue;
    return Invalid("token " + std::to_string(token) + " is outside the vocabulary of " +
                       std::to_string(vocabulary),
                   "prompt");
  }
  if (const auto sampler = Sampler::Make(request.sampler, vocabulary); !sampler) {
    return Invalid(sampler.error().message);
  }
  job->options = request.options.value_or(options.defaults);
  if (request.options) {
    // Responses do not depend on how a prompt is cut into row blocks.
    job->options.row_block = options.defaults.row_block;
    if (!job->options.on_projections) job->options.on_projections = options.defaults.on_projections;
  }
  if (job->options.context == 0) job->options.context = engine.model().context();
  if (job->options.compression.quality != 0) {
    return Invalid(
        "`quality` is not available here: its memory is not known in advance; give a size, a ratio "
        "or bytes",
        "quality");
  }
  const auto session = Session::Make(engine, job->options);
  if (!session) return Invalid(session.error().message);
  // The plan of a request that continues a session is known only when its turn comes (PlanBytes).
  const bool continues = request.session.has_value();
  if (!continues) {
    const int64_t n_prompt = std::ssize(request.prompt);
    if (const auto room = CheckPromptFits(**session, n_prompt); !room) {
      return Invalid(room.error().message, WrongField(room.error(), request));
    }
    const int64_t wanted =
        request.max_tokens >= 0 ? request.max_tokens : options.default_max_tokens;
    job->max_tokens = TokensToGenerate(**session, n_prompt, wanted);
    job->limit = job->max_tokens == wanted ? Finish::kLength : Finish::kContext;
    const auto bytes = PlanSequence(**session, n_prompt, std::max<int64_t>(0, job->max_tokens - 1),
                                    request.constraint != nullptr);
    if (!bytes) return Invalid(bytes.error().message, WrongField(bytes.error(), request));
    job->fresh = *bytes;
    const int64_t needed = request.n * bytes->steady + bytes->prefill + loop.fixed_bytes();
    if (options.memory_limit_bytes != 0 && needed > options.memory_limit_bytes) {
      return RequestError{ErrorKind::kTooLarge,
                          std::to_string(n_prompt) + " tokens and " +
                              std::to_string(job->max_tokens) + " to generate, " +
                              std::to_string(request.n) + " times, need " +
                              BytesAndLimit(needed, options.memory_limit_bytes) +
                              "; ask for fewer tokens or a smaller cache"};
    }
  } else {
    job->session = *request.session;
  }
  job->request = std::move(request);
  return job;
}

std::variant<Ticket, RequestError> Scheduler::Data::Enqueue(std::shared_ptr<Job> job) {
  const std::shared_ptr<TicketData> ticket = job->ticket;
  ticket->signal = signal;
  {
    const std::lock_guard lock(mutex);
    if (draining || stopped) {
      return ShuttingDown();
    }
    if (n_queued >= options.max_waiting) return QueueFull(n_queued);
    ticket->id = next_id++;
    incoming.push_back(std::move(job));
    incoming.back()->is_queued = true;
    ++n_queued;
    signal->woken = true;
  }
  signal->changed.notify_all();
  return Ticket(ticket);
}

std::variant<Ticket, RequestError> Scheduler::Submit(Request request) {
  Data& data = *data_;
  if (auto full = data.CheckQueue()) return *full;
  auto checked = data.Check(std::move(request));
  if (auto* error = std::get_if<RequestError>(&checked)) return std::move(*error);
  const std::shared_ptr<Job> job = std::get<std::shared_ptr<Job>>(std::move(checked));
  if (job->request.replaces) {
    job->session = *job->request.replaces;
    job->creates = true;
    if (auto refused = data.ClaimToReplace(job->session, job->claim)) return *refused;
  } else if (!job->session.empty()) {
    if (auto refused = data.ClaimExisting(job->session, job->claim)) return *refused;
  }
  return data.Enqueue(job);
}

void Scheduler::CreateSession(const std::string& id, Request document, const SessionDone& done) {
  Data& data = *data_;
  document.max_tokens = 0;
  document.n = 1;
  document.session.reset();
  document.replaces.reset();
  if (auto full = data.CheckQueue()) return done(*full);
  auto checked = data.Check(std::move(document));
  if (auto* error = std::get_if<RequestError>(&checked)) return done(std::move(*error));
  const std::shared_ptr<Job> job = std::get<std::shared_ptr<Job>>(std::move(checked));
  if (auto refused = data.ClaimNew(id, job->claim)) return done(*refused);
  job->session = id;
  job->creates = true;
  job->on_end = [&data, id, done](const RequestError* error) {
    done(error != nullptr ? SessionOutcome(*error) : data.Describe(id));
  };
  const auto queued = data.Enqueue(job);
  if (const auto* error = std::get_if<RequestError>(&queued)) {
    job->claim.Release(false);
    done(*error);
  }
}

}  // namespace winnow::runtime
