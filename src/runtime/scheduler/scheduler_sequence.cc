#include "runtime/scheduler/scheduler_sequence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "runtime/generate/logits.h"

namespace winnow::runtime {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Result<Sampler> MakeSampler(const Job& job, int choice, const Engine& engine) {
  SamplerConfig config = job.request.sampler;
  config.seed += static_cast<uint64_t>(choice);
  if (job.request.ignore_eos) BanEndOfGeneration(engine.tokenizer(), config);
  return Sampler::Make(config, engine.model().hyperparameters().vocabulary);
}

}  // namespace

CacheReport ReportCache(const Session& session) {
  const compression::MethodPtr& method = session.compression().method;
  const int n_layers = session.cache().config().shape.n_layers;
  double n_kept = 0;
  for (int layer = 0; layer < n_layers; ++layer) n_kept += session.kept(layer);
  return {.method = method ? method->traits().spec : "full",
          .n_seen = session.n_tokens(),
          .n_kept = n_kept / n_layers,
          .bytes = session.cache_bytes_with_lists(),
          .bytes_full_f16 = session.cache_bytes_full_f16()};
}

Sequence::Sequence(std::shared_ptr<Job> job, int choice, std::unique_ptr<Session>&& session,
                   Sampler sampler)
    : job_(std::move(job)),
      choice_(choice),
      sampler_(std::move(sampler)),
      text_(session->engine().tokenizer(), job_->request.stop) {
  const auto& constraint = job_->request.constraint;
  if (constraint) constraint_ = constraint->Copy();
  session_ = std::move(session);  // last: an exception leaves it to the caller
}

Result<std::unique_ptr<Sequence>> Sequence::Make(std::shared_ptr<Job> job, int choice,
                                                 std::unique_ptr<Session>&& session) {
  WINNOW_ASSIGN(Sampler sampler, MakeSampler(*job, choice, session->engine()));
  return std::unique_ptr<Sequence>(
      new Sequence(std::move(job), choice, std::move(session), std::move(sampler)));
}

Result<std::unique_ptr<Sequence>> Sequence::Fork(int choice) const {
  WINNOW_CHECK(n_generated_ == 0);
  WINNOW_ASSIGN(std::unique_ptr<Session> session, session_->Fork());
  WINNOW_ASSIGN(std::unique_ptr<Sequence> fork, Make(job_, choice, std::move(session)));
  fork->AcceptPrompt(fork->session().tokens());
  fork->timings_ = timings_;
  return fork;
}

void Sequence::AcceptPrompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) sampler_.Accept(token);
}

void Sequence::SetError(RequestError error) {
  error_ = std::move(error);
  finish_ = Finish::kError;
}

bool Sequence::StopAtProblem() {
  std::string problem = constraint_->problem();
  if (problem.empty()) return false;
  SetError({ErrorKind::kInvalid, std::move(problem)});
  return true;
}

void Sequence::SetPrefill(double ms, int64_t n_tokens) {
  timings_.prefill_ms = ms;
  timings_.n_prefill = n_tokens;
}

void Sequence::Choose() {
  if (finish_) return;
  if (const auto checked = CheckLogits(*session_); !checked) {
    return SetError({ErrorKind::kInternal, checked.error().message});
  }
  std::span<const float> logits = session_->logits();
  if (constraint_) {
    masked_.assign(logits.begin(), logits.end());
    constraint_->Mask(masked_);
    if (StopAtProblem()) return;
    const auto possible = [](float logit) { return logit > kMinusInfinity; };
    if (std::ranges::none_of(masked_, possible)) {
      return SetError({ErrorKind::kInternal, "the grammar allows no token after " +
                                                 std::to_string(n_generated_) +
                                                 " generated tokens"});
    }
  }
  const Result<TokenId> token = sampler_.Sample(constraint_ ? masked_ : logits);
  if (!token) return SetError({ErrorKind::kInvalid, token.error().message, "logit_bias"});
  token_ = *token;
  if (constraint_) {
    const bool accepted = constraint_->Accept(token_);
    if (StopAtProblem()) return;
    if (!accepted) return SetError({ErrorKind::kInternal, RefusedToken(token_).message});
  }
  sampler_.Accept(token_);
  ++n_generated_;
  if (job_->request.n_probs < 0) return;
  // From the model's own logits, before bias, penalties, filters and grammar.
  Probabilities probabilities = ComputeProbabilities(logits, token_, job_->request.n_probs);
  log_probability_ = probabilities.log_probability;
  top_ = std::move(probabilities.top);
}

void Sequence::Deliver(Clock::TimePoint now) {
  if (finish_) return;
  if (n_generated_ == 1) {
    first_token_ = now;
    timings_.first_token_ms = Milliseconds(job_->arrived, now);
  }
  last_token_ = now;
  const bool ends = session_->engine().tokenizer().IsEndOfGeneration(token_);
  Event event = {.kind = Event::Kind::kToken,
                 .choice = choice_,
                 .token = token_,
                 .text = ends ? std::string() : text_.Push(token_),
                 .log_probability = log_probability_,
                 .top = std::move(top_)};
  job_->Notify(event);
  top_ = std::move(event.top);
  const bool is_finished = ends || (constraint_ && constraint_->finished());
  // finished() advances the constraint and may run into the problem itself: the text is then no
  // valid response.
  if (constraint_ && StopAtProblem()) return;
  if (is_finished) {
    finish_ = Finish::kStop;
  } else if (text_.stopped()) {
    finish_ = Finish::kStopString;
  } else if (n_generated_ >= job_->max_tokens) {
    finish_ = job_->limit;
  } else if (session_->room() == 0) {
    finish_ = Finish::kContext;
  }
}

Event Sequence::Finished() {
  WINNOW_CHECK(finish_.has_value());
  Event event = {.kind = Event::Kind::kFinished, .choice = choice_};
  event.rest = text_.Finish();
  // Text that was held back may turn out to be a stop string.
  if (text_.stopped() && *finish_ != Finish::kError) finish_ = Finish::kStopString;
  if (n_generated_ > 0) timings_.decode_ms = Milliseconds(first_token_, last_token_);
  event.finish = *finish_;
  event.stopping_word = text_.stopping_word();
  event.cache = ReportCache(*session_);
  event.timings = timings_;
  event.queued_ms = Milliseconds(job_->arrived, job_->started);
  event.error = error_;
  return event;
}

}  // namespace winnow::runtime
