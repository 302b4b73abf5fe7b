#include "runtime/session/prefill.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "runtime/session/session_data.h"

namespace winnow::runtime {

namespace {

// Shares of a part's work that are done when its replay begins and ends: a replay costs about as
// much as reading the part, and the decision comes after it.
constexpr double kReplayFrom = 0.4;
constexpr double kReplayTo = 0.9;

}  // namespace

void Prefill::Begin(std::span<const Prompt> prompts) {
  WINNOW_CHECK(!active());
  works_.clear();
  n_all_ = 0;
  try {
    for (const Prompt& prompt : prompts) {
      Work& work = works_.emplace_back();
      work.prompt = prompt;
      n_all_ += work.n_left();
      if (const auto ready = Prepare(work); !ready) work.failure = ready.error();
    }
    BeginPass();
  } catch (const std::exception&) {
    Abandon();
    throw;
  }
}

Result<void> Prefill::Prepare(Work& work) const {
  const Prompt& prompt = work.prompt;
  Session::Data& data = *prompt.session->data_;
  work.n_before = data.n_tokens();
  const int64_t n = work.n_left();
  if (n == 0) return {};
  WINNOW_TRY(prompt.session->CheckCapacity(n));
  WINNOW_TRY(prompt.session->CheckTokens(prompt.tokens));
  WINNOW_ASSIGN(work.n_call, data.compressor.BeginPrompt(*data.cache, n, data.CallSize(n)));
  work.appends = data.compressor.appends();
  return {};
}

// Begins a pass with the next part, or replay, of every prompt that has one.
void Prefill::BeginPass() {
  pass_.clear();
  spans_.clear();
  spans_.reserve(works_.size());
  int64_t row_block = 1;
  for (size_t i = 0; i < works_.size(); ++i) {
    const Work& work = works_[i];
    if (work.failure || work.dropped || work.n_left() == 0) continue;
    work.replays() ? AddReplay(i) : AddPart(i);
    row_block = std::max(row_block, work.prompt.session->data_->options.row_block);
  }
  if (pass_.empty()) return;
  if (const auto begun = step_.Begin(spans_, row_block); !begun) Fail(begun.error());
}

void Prefill::AddPart(size_t i) {
  Work& work = works_[i];
  const Prompt& prompt = work.prompt;
  Session::Data& data = *prompt.session->data_;
  const std::span<const TokenId> tokens = work.part();
  const auto n = static_cast<int64_t>(tokens.size());
  model::TokenSpan& span = spans_.emplace_back(data.BeginCall(tokens, work.phase()));
  double to = 1;
  if (!work.appends && data.compressor.DecidesAtEnd()) {
    to = data.compressor.Replay() != nullptr ? kReplayFrom : kReplayTo;
  }
  pass_.push_back({.work = i, .from = 0, .to = to});
  span.sequence.failure = &work.failure;
  const int64_t logits_from = prompt.logits_from - work.n_read;
  const bool gives_rows = prompt.logits_from >= 0 && logits_from < n;
  // If no row was requested, the caller gets that of the prompt's last token.
  if (prompt.on_logits && (gives_rows || n == work.n_left())) {
    span.logits_from = gives_rows ? std::max<int64_t>(0, logits_from) : n - 1;
    span.on_logits = [&work](int64_t first_row, std::span<const float> rows) {
      work.prompt.on_logits(work.n_read + first_row, rows);
    };
  }
}

void Prefill::AddReplay(size_t i) {
  Work& work = works_[i];
  const Session::Data::ReplayPass& pass = work.replay[work.n_replayed];
  const auto n_part = static_cast<double>(work.part().size());
  const auto share = [&](int64_t token) {
    return kReplayFrom + (kReplayTo - kReplayFrom) * static_cast<double>(token) / n_part;
  };
  pass_.push_back(
      {.work = i, .from = share(pass.chunk.first), .to = share(pass.chunk.first + pass.chunk.n)});
  spans_.push_back(work.prompt.session->data_->BeginReplay(pass));
  spans_.back().sequence.failure = &work.failure;
}

bool Prefill::Run(const model::Quota& quota) {
  decided_ = false;
  if (!active()) return true;
  if (!deciding_) {
    const Result<bool> finished = step_.Run(quota);
    if (!finished) {
      Fail(finished.error());
    } else if (*finished) {
      EndPass();
    }
    if (!finished || !*finished) return !active();
    // A piece of a decision may take as long as a block: leave it to the next Run.
    if (deciding_ && quota.n_blocks == 1) return false;
  }
  for (int64_t n = 0; deciding_ && n < quota.n_blocks; ++n) {
    decided_ = true;
    deciding_ = DecideSome();
  }
  if (!deciding_) BeginPass();
  return !active();
}

bool Prefill::RunToDecision(const std::function<bool(double done)>& goes_on) {
  while (!deciding_ && !Run({.n_blocks = 1})) {
    if (goes_on && !goes_on(done())) return false;
  }
  return true;
}

// Runs a piece of the first decision that is not finished. True: there are more.
bool Prefill::DecideSome() {
  const auto next = [this] {
    return std::ranges::find_if(works_, [](const Work& work) { return work.decides; });
  };
  const auto work = next();
  if (work == works_.end()) return false;
  Session::Data& data = *work->prompt.session->data_;
  if (!data.compressor.DecideSome(*data.cache)) return true;
  work->decides = false;
  EndPart(*work);
  return next() != works_.end();
}

void Prefill::EndPass() {
  for (const Part& part : pass_) {
    Work& work = works_[part.work];
    if (work.dropped) continue;
    if (work.failure) {
      Rollback(work);
      continue;
    }
    if (work.replays()) {
      ++work.n_replayed;
    } else if (!work.appends && work.prompt.session->data_->compressor.DecidesAtEnd()) {
      Session::Data& data = *work.prompt.session->data_;
      work.replay = data.PlanReplay(work.part());
      work.n_replayed = 0;
      if (data.compressor.Replay() != nullptr && work.replay.empty()) {
        data.engine->CountNotReplayed(std::ssize(work.part()));
      }
    }
    if (work.replays()) continue;
    work.decides = !work.appends && work.prompt.session->data_->compressor.DecidesAtEnd();
    deciding_ = deciding_ || work.decides;
    if (!work.decides) EndPart(work);
  }
}

void Prefill::EndPart(Work& work) const {
  Session::Data& data = *work.prompt.session->data_;
  const std::span<const TokenId> tokens = work.part();
  if (const auto ended = data.EndCall(tokens, work.phase()); !ended) {
    work.failure = ended.error();
    return Rollback(work);
  }
  work.n_read += static_cast<int64_t>(tokens.size());
  work.replay.clear();
  work.n_replayed = 0;
}

void Prefill::Rollback(Work& work) const {
  Session::Data& data = *work.prompt.session->data_;
  data.Rollback();
  work.prompt.session->Truncate(work.n_before);
}

void Prefill::DropFromPass(Work& work) const {
  // Past the layers, the logits from before may have been overwritten.
  if (deciding_ || step_.done() == 1) work.prompt.session->data_->has_logits = false;
  Rollback(work);
  work.dropped = true;
  work.decides = false;
}

// The pass as a whole cannot go on: fails all its prompts.
void Prefill::Fail(const Error& error) {
  for (const Part& part : pass_) {
    Work& work = works_[part.work];
    if (work.dropped) continue;
    if (!work.failure) work.failure = error;
    Rollback(work);
  }
  pass_.clear();
}

void Prefill::Drop(size_t prompt) {
  Work& work = works_[prompt];
  if (work.dropped) return;
  for (size_t i = 0; i < pass_.size(); ++i) {
    if (pass_[i].work != prompt) continue;
    if (!deciding_) step_.Drop(i);
    DropFromPass(work);
  }
  work.dropped = true;
  const auto is_left = [this](const Part& part) {
    return !works_[part.work].dropped && !works_[part.work].failure;
  };
  if (active() && std::none_of(pass_.begin(), pass_.end(), is_left)) Abandon();
}

void Prefill::Abandon() {
  // Not only those in pass_: after an exception, calls may have begun that it does not list.
  for (Work& work : works_) {
    if (!work.dropped && !work.failure && work.n_left() > 0) DropFromPass(work);
  }
  if (active() && !deciding_) step_.Abandon();
  deciding_ = false;
  pass_.clear();
}

double Prefill::done() const {
  if (n_all_ == 0) return 1;
  double n_done = 0;
  for (const Work& work : works_) n_done += static_cast<double>(work.n_read);
  if (active()) {
    const double of_pass = deciding_ ? 1 : step_.done();
    for (const Part& part : pass_) {
      n_done += (part.from + of_pass * (part.to - part.from)) *
                static_cast<double>(works_[part.work].part().size());
    }
  }
  return n_done / static_cast<double>(n_all_);
}

}  // namespace winnow::runtime
