#include "winnow/scheduler.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "api/convert.h"
#include "api/impl.h"
#include "base/log.h"
#include "runtime/engine.h"
#include "runtime/scheduler/scheduler.h"

namespace winnow {
namespace {

ErrorCode CodeFrom(runtime::ErrorKind kind) {
  switch (kind) {
    case runtime::ErrorKind::kInvalid:
      return ErrorCode::kInvalid;
    case runtime::ErrorKind::kNotFound:
      return ErrorCode::kNotFound;
    case runtime::ErrorKind::kBusy:
      return ErrorCode::kBusy;
    case runtime::ErrorKind::kQueueFull:
      return ErrorCode::kQueueFull;
    case runtime::ErrorKind::kTooLarge:
      return ErrorCode::kTooLarge;
    case runtime::ErrorKind::kUnavailable:
      return ErrorCode::kUnavailable;
    case runtime::ErrorKind::kInternal:
      return ErrorCode::kInternal;
  }
  return ErrorCode::kInternal;
}

Error ErrorFrom(const runtime::RequestError& error) {
  return {.message = error.message, .code = CodeFrom(error.kind)};
}

StopReason StopReasonFrom(runtime::Finish finish) {
  switch (finish) {
    case runtime::Finish::kStop:
      return StopReason::kEndOfGeneration;
    case runtime::Finish::kStopString:
      return StopReason::kStopString;
    case runtime::Finish::kLength:
      return StopReason::kLimit;
    case runtime::Finish::kContext:
      return StopReason::kContext;
    case runtime::Finish::kCancelled:
    case runtime::Finish::kError:
      return StopReason::kCancelled;
  }
  return StopReason::kCancelled;
}

}  // namespace

struct Pending::Impl {
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;
  Generation generation;
  std::optional<Error> error;
  // Set by the caller, or when a function returned false. Not by Ticket::Cancel: events can come
  // before Submit has returned a ticket.
  std::atomic<bool> cancelled = false;

  bool stopped_by_callback = false;  // a function returned false; no function is called again

  void Stop() {
    stopped_by_callback = true;
    cancelled = true;
  }

  // Called on the scheduler's thread.
  void Take(const runtime::Event& event, const GenerateOptions& options) {
    const auto add = [&](const std::string& text) {
      generation.text += text;
      if (text.empty() || !options.on_text || stopped_by_callback) return;
      if (!options.on_text(text)) Stop();
    };
    switch (event.kind) {
      case runtime::Event::Kind::kPrefill:
        if (options.on_prefill) {
          options.on_prefill(static_cast<double>(event.n_done) / static_cast<double>(event.n_all));
        }
        return;
      case runtime::Event::Kind::kStarted:
        generation.prompt_tokens = event.n_prompt;
        generation.reused_tokens = event.n_reused;
        if (options.on_prefill) options.on_prefill(1);
        if (options.on_prompt) options.on_prompt();
        return;
      case runtime::Event::Kind::kToken:
        generation.tokens.push_back(event.token);
        if (!stopped_by_callback &&
            !api::ReportToken(options, event.token, event.text,
                              {.log_probability = event.log_probability, .top = event.top},
                              generation)) {
          Stop();
        }
        return add(event.text);
      case runtime::Event::Kind::kFinished:
        generation.stop_reason = StopReasonFrom(event.finish);
        // As a session reports it, also when on_token or on_text stops at the last token that fits.
        if (stopped_by_callback && (event.finish == runtime::Finish::kLength ||
                                    event.finish == runtime::Finish::kContext)) {
          generation.stop_reason = StopReason::kCancelled;
        }
        add(event.rest);
        api::CopyTimings(event.timings, generation);
        break;
      case runtime::Event::Kind::kFailed:
        error = ErrorFrom(event.error);
        break;
    }
    const std::lock_guard lock(mutex);
    done = true;
    ended.notify_all();
  }
};

Result<Generation> Pending::Wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->ended.wait(lock, [this] { return impl_->done; });
  if (impl_->error) return *impl_->error;
  return impl_->generation;
}

bool Pending::done() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->done;
}

void Pending::Cancel() { impl_->cancelled = true; }

struct Scheduler::Impl {
  class Claim {
   public:
    explicit Claim(runtime::Engine& engine) : engine_(engine) {}
    ~Claim() { engine_.ReleaseStep(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    runtime::Engine& engine_;
  };

  std::shared_ptr<const void> model;  // kept alive; declared first, so destroyed last
  runtime::Engine* engine = nullptr;
  std::optional<Claim> claim;  // declared before the scheduler, so released after it
  NullLog log;
  std::unique_ptr<runtime::Scheduler> scheduler;
};

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::Scheduler(Scheduler&& other) noexcept = default;
Scheduler& Scheduler::operator=(Scheduler&& other) noexcept = default;
Scheduler::~Scheduler() = default;

Result<Scheduler> Scheduler::Make(std::shared_ptr<const void> model, void* engine,
                                  const SchedulerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->model = std::move(model);
  impl->engine = static_cast<runtime::Engine*>(engine);
  if (!impl->engine->ClaimStep()) {
    return api::ModelInUse("NewScheduler",
                           impl->engine->step_claimed() ? "a scheduler" : "a call of a session");
  }
  impl->claim.emplace(*impl->engine);
  runtime::SchedulerOptions wanted;
  wanted.memory_limit_bytes = options.memory_limit_bytes;
  wanted.max_running = options.max_running;
  wanted.max_waiting = options.max_waiting;
  wanted.max_token_gap_ms = options.max_token_gap_ms;
  WINNOW_ASSIGN(wanted.defaults, api::Convert(options.session));
  WINNOW_ASSIGN(impl->scheduler,
                api::WithCode(runtime::Scheduler::Make(*impl->engine, wanted, impl->log),
                              ErrorCode::kInvalid));
  impl->scheduler->Start();
  return Scheduler(std::move(impl));
}

Result<Pending> Scheduler::Submit(std::string_view prompt, const GenerateOptions& options) {
  return Submit(api::EncodePrompt(*impl_->engine, prompt, options), options);
}

Result<Pending> Scheduler::Submit(std::span<const Token> prompt, const GenerateOptions& options) {
  return Submit(prompt, options, {}, /*has_session=*/false);
}

Result<Pending> Scheduler::Submit(std::span<const Token> prompt, const GenerateOptions& options,
                                  const SessionOptions& session) {
  return Submit(prompt, options, session, /*has_session=*/true);
}

Result<Pending> Scheduler::Submit(std::span<const Token> prompt, const GenerateOptions& options,
                                  const SessionOptions& session, bool has_session) {
  WINNOW_TRY(api::CheckOptions(options, impl_->engine->tokenizer().vocabulary_size()));
  if (options.sampler) {
    return Error{.message = "`sampler` works only with sessions; use `sampling`",
                 .code = ErrorCode::kInvalid};
  }
  if (options.constraint && options.constraint.impl_->tokenizer != &impl_->engine->tokenizer()) {
    return Error{.message = "Submit: the constraint belongs to another model",
                 .code = ErrorCode::kInvalid};
  }
  auto pending = std::make_shared<Pending::Impl>();
  runtime::Request request;
  request.prompt.assign(prompt.begin(), prompt.end());
  if (has_session) {
    WINNOW_ASSIGN(request.options, api::Convert(session));
  }
  request.sampler = api::Convert(options.sampling);
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  request.n_probs = options.top_probabilities;
  if (options.constraint) request.constraint = options.constraint.impl_->constraint->Copy();
  request.cancelled = [pending, token = options.cancel.flag()] {
    return pending->cancelled.load(std::memory_order_relaxed) ||
           (token && token->load(std::memory_order_relaxed));
  };
  request.on_event = [pending, options](const runtime::Event& event) {
    pending->Take(event, options);
  };
  auto submitted = impl_->scheduler->Submit(std::move(request));
  if (const auto* error = std::get_if<runtime::RequestError>(&submitted)) return ErrorFrom(*error);
  return Pending(pending);
}

int64_t Scheduler::reserved_bytes() const { return impl_->scheduler->state().reserved_bytes; }

}  // namespace winnow
