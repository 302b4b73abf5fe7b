#include "eval/workloads/choices.h"

#include <utility>

#include "base/log_sum_exp.h"
#include "eval/run/equal_bytes.h"
#include "runtime/generate/logits.h"

namespace winnow::eval {
namespace {

double LogProb(std::span<const float> logits, TokenId token) {
  return logits[static_cast<size_t>(token)] - LogSumExp(logits);
}

// The sum over all tokens of a continuation. The last token is not fed, as nothing follows it.
Result<double> SumLogProbs(runtime::Session& session, std::span<const TokenId> tokens) {
  WINNOW_TRY(runtime::CheckLogits(session));
  double sum = LogProb(session.logits(), tokens[0]);
  for (size_t i = 1; i < tokens.size(); ++i) {
    WINNOW_TRY(session.Decode(tokens[i - 1]));
    WINNOW_TRY(runtime::CheckLogits(session));
    sum += LogProb(session.logits(), tokens[i]);
  }
  return sum;
}

class ChoicesWorkload final : public Workload {
 public:
  explicit ChoicesWorkload(Choices choices) : choices_(std::move(choices)) {}

  const Choices& choices() const { return choices_; }

  uint64_t fingerprint() const override {
    Fingerprint all;
    all.Add(choices_.prompt.tokens).Add(choices_.references);
    for (const auto& tokens : choices_.continuations) all.Add(tokens);
    return all.value();
  }

  Result<Outcome> Run(const RunContext& run_context) override {
    WINNOW_ASSIGN(const auto session, ReadPrompt(run_context, choices_.prompt.tokens, 0.7));
    if (!session) return Outcome{.stopped = true};
    Outcome outcome;
    MeasureCache(*session, outcome);
    std::vector<double> log_probs;
    for (const std::vector<TokenId>& tokens : choices_.continuations) {
      WINNOW_ASSIGN(const auto fork, session->Fork());
      WINNOW_ASSIGN(const double log_prob, SumLogProbs(*fork, tokens));
      log_probs.push_back(log_prob);
      const auto n = static_cast<double>(choices_.continuations.size());
      if (!run_context.KeepGoing(0.7 + 0.3 * static_cast<double>(log_probs.size()) / n)) {
        return Outcome{.stopped = true};
      }
    }
    outcome.scores = choices_.score(log_probs);
    outcome.details = {
        {"choices", report::MakeList(choices_.texts)},
        {"log_probs", report::MakeList(log_probs)},
        {"references", report::MakeList(choices_.references)},
        {"prompt_end", TextEnd(run_context.engine.tokenizer(), choices_.prompt.tokens)},
        {"prompt_tokens", static_cast<int64_t>(choices_.prompt.tokens.size())}};
    if (choices_.prompt.truncated()) {
      outcome.details.Add("truncated_from", choices_.prompt.n_untruncated);
    }
    return outcome;
  }

 private:
  Choices choices_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Choices choices) {
  return std::make_unique<ChoicesWorkload>(std::move(choices));
}

const Choices* AsChoices(const Workload& workload) {
  const auto* choices = dynamic_cast<const ChoicesWorkload*>(&workload);
  return choices ? &choices->choices() : nullptr;
}

}  // namespace winnow::eval
