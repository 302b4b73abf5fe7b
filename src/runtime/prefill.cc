#include "runtime/prefill.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/session_data.h"

namespace winnow::runtime {

using compression::Phase;

void Prefill::Begin(std::span<const Prompt> prompts) {
  WINNOW_CHECK(!at_work());
  works_.clear();
  n_all_ = 0;
  for (const Prompt& prompt : prompts) {
    Work& work = works_.emplace_back();
    work.prompt = prompt;
    n_all_ += work.n_left();
    if (const auto ready = Prepare(work); !ready) work.failure = ready.error();
  }
  BeginWave();
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
  return {};
}

// The next part of every prompt that has one.
void Prefill::BeginWave() {
  wave_.clear();
  spans_.clear();
  spans_.reserve(works_.size());
  int64_t row_block = 1;
  for (size_t i = 0; i < works_.size(); ++i) {
    const Work& work = works_[i];
    if (work.failure || work.dropped || work.n_left() == 0) continue;
    AddPart(i);
    row_block = std::max(row_block, work.prompt.session->data_->options.row_block);
  }
  if (wave_.empty()) return;
  if (const auto begun = step_.Begin(spans_, row_block); !begun) Fail(begun.error());
}

void Prefill::AddPart(size_t i) {
  Work& work = works_[i];
  const Prompt& prompt = work.prompt;
  const int64_t n = std::min(work.n_call, work.n_left());
  const auto tokens =
      prompt.tokens.subspan(static_cast<size_t>(work.n_read), static_cast<size_t>(n));
  wave_.push_back({.work = i, .tokens = tokens});
  model::TokenSpan& span =
      spans_.emplace_back(prompt.session->data_->BeginCall(tokens, Phase::kPrefill));
  span.sequence.failure = &work.failure;
  const int64_t logits_from = prompt.logits_from - work.n_read;
  const bool gives_rows = prompt.logits_from >= 0 && logits_from < n;
  // Without wanted rows the caller gets the very last ones.
  if (prompt.on_logits && (gives_rows || n == work.n_left())) {
    span.logits_from = gives_rows ? std::max<int64_t>(0, logits_from) : n - 1;
    span.on_logits = [&work](int64_t first_row, std::span<const float> rows) {
      work.prompt.on_logits(work.n_read + first_row, rows);
    };
  }
}

bool Prefill::Run(const model::Quota& quota) {
  if (!at_work()) return true;
  const Result<bool> finished = step_.Run(quota);
  if (!finished) {
    Fail(finished.error());
  } else if (*finished) {
    EndWave();
    BeginWave();
  }
  return !at_work();
}

void Prefill::EndWave() {
  for (const Part& part : wave_) {
    Work& work = works_[part.work];
    if (work.dropped) continue;
    if (work.failure) {
      Rollback(work);
      continue;
    }
    work.prompt.session->data_->EndCall(part.tokens, Phase::kPrefill);
    work.n_read += static_cast<int64_t>(part.tokens.size());
  }
}

void Prefill::Rollback(Work& work) const {
  Session::Data& data = *work.prompt.session->data_;
  data.Rollback();
  work.prompt.session->Truncate(work.n_before);
}

// The pass as a whole cannot go on.
void Prefill::Fail(const Error& error) {
  for (const Part& part : wave_) {
    Work& work = works_[part.work];
    if (work.dropped) continue;
    if (!work.failure) work.failure = error;
    Rollback(work);
  }
  wave_.clear();
}

void Prefill::Drop(size_t prompt) {
  Work& work = works_[prompt];
  if (work.dropped || work.failure) return;
  for (size_t i = 0; i < wave_.size(); ++i) {
    if (wave_[i].work != prompt) continue;
    step_.Drop(i);
    Rollback(work);
    work.dropped = true;
  }
  const auto is_left = [this](const Part& part) {
    return !works_[part.work].dropped && !works_[part.work].failure;
  };
  if (at_work() && std::none_of(wave_.begin(), wave_.end(), is_left)) Abandon();
}

void Prefill::Abandon() {
  if (!at_work()) return;
  step_.Abandon();
  for (const Part& part : wave_) {
    Work& work = works_[part.work];
    if (!work.dropped) Rollback(work);
    work.dropped = true;
  }
  wave_.clear();
}

double Prefill::done() const {
  if (n_all_ == 0) return 1;
  int64_t n_read = 0;
  for (const Work& work : works_) n_read += work.n_read;
  double n_done = static_cast<double>(n_read);
  int64_t n_wave = 0;
  for (const Part& part : wave_) n_wave += static_cast<int64_t>(part.tokens.size());
  if (at_work()) n_done += step_.done() * static_cast<double>(n_wave);
  return n_done / static_cast<double>(n_all_);
}

}  // namespace winnow::runtime
