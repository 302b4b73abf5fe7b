#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/statistics.h"
#include "eval/metrics/kl_divergence.h"
#include "eval/metrics/log_probs_file.h"
#include "eval/run/text_windows.h"
#include "report/safetensors.h"
#include "winnow/session.h"

// Scores the windows of a text for `perplexity`.
namespace winnow::apps {

// Other uses of the logits: files, and the comparison with a base.
struct LogitsFiles {
  std::optional<eval::LogProbsWriter> base_writer;
  std::optional<eval::LogProbsReader> base_reader;
  std::optional<report::SafetensorsWriter> logits_writer;
  eval::KlDivergence kl;

  // Takes the logits that predict the scored token `next`. Errors: a file cannot be written; a
  // damaged base.
  Result<void> TakeScored(std::span<const float> logits, Token next);
  bool writes() const { return base_writer || logits_writer; }
  Result<void> Finish();

 private:
  std::vector<float> log_probs_;
};

// Scores one window after the other, each in an empty session.
class WindowScores {
 public:
  // Requires: the arguments outlive this object.
  WindowScores(Session& session, const eval::TextWindows& windows, LogitsFiles& files)
      : session_(session), windows_(windows), files_(files) {}

  int64_t n_prompt = -1;                           // ScoreOptions::n_prompt of each window
  std::function<bool(double done)> progress = {};  // share of all windows; false stops

  // False: stopped. Errors: those of Session::Score and of the files.
  Result<bool> Score(int64_t window);
  // Negative log-likelihood of the tokens scored so far, nats.
  const MeanEstimate& nll() const { return nll_; }

 private:
  Result<void> Take(const LogitRows& rows, std::span<const Token> tokens);

  Session& session_;
  const eval::TextWindows& windows_;
  LogitsFiles& files_;
  MeanEstimate nll_;
};

}  // namespace winnow::apps
