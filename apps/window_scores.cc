#include "window_scores.h"

namespace winnow::apps {

Result<void> LogitsFiles::TakeScored(std::span<const float> logits, Token next) {
  if (base_writer) WINNOW_TRY(base_writer->Write(logits));
  if (base_reader) {
    log_probs_.resize(logits.size());
    WINNOW_TRY(base_reader->Read(log_probs_));
    kl.Add(eval::RowComparison::Make(logits, log_probs_, next));
  }
  return {};
}

Result<void> LogitsFiles::Finish() {
  if (base_writer) WINNOW_TRY(base_writer->Finish());
  if (logits_writer) WINNOW_TRY(logits_writer->Finish());
  return {};
}

Result<bool> WindowScores::Score(int64_t window) {
  const std::span<const Token> tokens = windows_.Tokens(window);
  CancellationToken stop = CancellationToken::Make();
  Result<void> taken;
  ScoreOptions options = {.first = files_.logits_writer ? 0 : windows_.first_scored(),
                          .n_prompt = n_prompt};
  options.cancel = stop;
  options.on_rows = [&](const LogitRows& rows) {
    if (taken) taken = Take(rows, tokens);
    if (!taken) stop.Cancel();
  };
  options.on_progress = [&](double done) {
    const double of_all =
        (static_cast<double>(window) + done) / static_cast<double>(windows_.n_windows);
    if (progress && !progress(of_all)) stop.Cancel();
  };
  session_.Truncate(0);
  const auto scores = session_.Score(tokens, options);
  if (!taken) return taken.error();
  if (!scores && scores.error().code == ErrorCode::kCancelled) return false;
  if (!scores) return scores.error();
  return true;
}

Result<void> WindowScores::Take(const LogitRows& rows, std::span<const Token> tokens) {
  if (files_.logits_writer) WINNOW_TRY(files_.logits_writer->Write(rows.logits));
  int64_t next = rows.first;
  for (const double log_probability : rows.log_probabilities) {
    const std::span<const float> row = rows.Row(next - rows.first);
    if (++next < windows_.first_scored()) continue;
    nll_.Add(-log_probability);
    WINNOW_TRY(files_.TakeScored(row, tokens[static_cast<size_t>(next)]));
  }
  return {};
}

}  // namespace winnow::apps
