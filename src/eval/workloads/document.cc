#include "eval/workloads/document.h"

#include <atomic>
#include <span>
#include <utility>

#include "base/check.h"
#include "eval/metrics/normalise.h"
#include "eval/run/equal_bytes.h"
#include "eval/run/prompt.h"
#include "runtime/generate/generate.h"

namespace winnow::eval {
namespace {

using runtime::Generated;
using runtime::Session;

// Reading's share of the work; the answers are the rest.
constexpr double kReading = 0.7;

class DocumentWorkload final : public Workload {
 public:
  explicit DocumentWorkload(Document document) : document_(std::move(document)) {
    WINNOW_CHECK(!document_.questions.empty());
  }

  uint64_t fingerprint() const override {
    Fingerprint fingerprint;
    fingerprint.Add("document").Add(document_.tokens).Add(document_.max_tokens).Add(document_.stop);
    for (const Document::Asked& asked : document_.questions) {
      fingerprint.Add(asked.tokens).Add(asked.references);
    }
    return fingerprint.value();
  }

  Result<Outcome> Run(const RunContext& run_context) override {
    WINNOW_ASSIGN(const auto session, ReadPrompt(run_context, document_.tokens, kReading));
    if (!session) return Outcome{.stopped = true};
    Outcome outcome;
    MeasureCache(*session, outcome);

    std::vector<std::string> answers, references;
    std::vector<Generated> generated;
    for (const Document::Asked& asked : document_.questions) {
      // The last one needs no copy.
      std::unique_ptr<Session> fork;
      if (&asked != &document_.questions.back()) {
        WINNOW_ASSIGN(fork, session->Fork());
      }
      WINNOW_ASSIGN(std::optional<Generated> answer,
                    Ask(run_context, fork ? *fork : *session, asked));
      if (!answer) return Outcome{.stopped = true};
      AddScores(asked.score(answer->text), outcome);
      answers.push_back(answer->text);
      references.insert(references.end(), asked.references.begin(), asked.references.end());
      generated.push_back(*std::move(answer));
    }
    for (Score& score : outcome.scores) score.value /= static_cast<double>(answers.size());

    const Generated& first = generated.front();
    const auto& question = document_.questions.front().tokens;
    outcome.details = {{"answer", Join(answers, " | ")},
                       {"references", report::MakeList(references)},
                       {"prompt_end", TextEnd(run_context.engine.tokenizer(), question)},
                       {"prompt_tokens", first.n_prompt},
                       {"answer_tokens", static_cast<int64_t>(first.tokens.size())},
                       {"document_tokens", static_cast<int64_t>(document_.tokens.size())},
                       {"questions", static_cast<int64_t>(answers.size())},
                       {"stop_reason", ToString(first.stop_reason)},
                       {"first_token_ms", first.timings.first_token_ms},
                       {"tokens_per_second", first.timings.decode_tokens_per_second()}};
    return outcome;
  }

 private:
  // Continues after the document. nullopt: stopped.
  Result<std::optional<Generated>> Ask(const RunContext& run_context, Session& session,
                                       const Document::Asked& asked) const {
    for (const TokenId token : asked.tokens) {
      WINNOW_TRY(session.Decode(token));
      if (!run_context.KeepGoing(kReading)) return std::optional<Generated>();
    }
    WINNOW_ASSIGN(auto sampler,
                  runtime::Sampler::Make({.temperature = 0},
                                         run_context.engine.model().hyperparameters().vocabulary));
    std::vector<TokenId> prompt = document_.tokens;
    prompt.insert(prompt.end(), asked.tokens.begin(), asked.tokens.end());
    std::atomic<bool> cancelled = false;
    runtime::GenerateOptions options;
    options.max_tokens = document_.max_tokens;
    options.stop = document_.stop;
    options.cancel = &cancelled;
    options.on_text = [&](std::string_view) { cancelled = !run_context.KeepGoing(kReading); };
    WINNOW_ASSIGN(Generated answer, Generate(session, sampler, prompt, options));
    if (answer.stop_reason == runtime::StopReason::kCancelled) return std::optional<Generated>();
    return std::optional(std::move(answer));
  }

  static void AddScores(const std::vector<Score>& scores, Outcome& outcome) {
    if (outcome.scores.empty()) {
      outcome.scores = scores;
      return;
    }
    WINNOW_CHECK(outcome.scores.size() == scores.size());
    for (size_t i = 0; i < scores.size(); ++i) outcome.scores[i].value += scores[i].value;
  }

  Document document_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Document document) {
  return std::make_unique<DocumentWorkload>(std::move(document));
}

}  // namespace winnow::eval
