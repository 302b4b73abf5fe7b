#include "eval/workloads/question.h"

#include <atomic>
#include <memory>
#include <utility>

#include "eval/run/equal_bytes.h"
#include "runtime/generate/generate.h"

namespace winnow::eval {
namespace {

class QuestionWorkload final : public Workload {
 public:
  explicit QuestionWorkload(Question question) : question_(std::move(question)) {}

  const Question& question() const { return question_; }

  uint64_t fingerprint() const override {
    Fingerprint fingerprint;
    fingerprint.Add(question_.prompt.tokens)
        .Add(question_.max_tokens)
        .Add(question_.stop)
        .Add(question_.references);
    return fingerprint.value();
  }

  Result<Outcome> Run(const RunContext& run_context) override {
    WINNOW_ASSIGN(const auto session, MakeSession(run_context, question_.prompt.tokens));
    if (!session) return Outcome{.stopped = true};
    WINNOW_ASSIGN(auto sampler,
                  runtime::Sampler::Make({.temperature = 0},
                                         run_context.engine.model().hyperparameters().vocabulary));
    Outcome outcome;
    std::atomic<bool> cancelled = false;
    runtime::GenerateOptions options;
    options.max_tokens = question_.max_tokens;
    options.stop = question_.stop;
    options.cancel = &cancelled;
    // Reading the prompt is most of the work.
    options.on_prefill = [&](double done) { cancelled = !run_context.KeepGoing(0.7 * done); };
    options.on_prompt = [&] { MeasureCache(*session, outcome); };
    options.on_text = [&](std::string_view) { cancelled = !run_context.KeepGoing(0.85); };
    WINNOW_ASSIGN(const runtime::Generated answer,
                  Generate(*session, sampler, question_.prompt.tokens, options));
    if (answer.stop_reason == runtime::StopReason::kCancelled) return Outcome{.stopped = true};

    outcome.scores = question_.score(answer.text);
    outcome.details = {
        {"answer", answer.text},
        {"references", report::MakeList(question_.references)},
        {"prompt_end", TextEnd(run_context.engine.tokenizer(), question_.prompt.tokens)},
        {"prompt_tokens", answer.n_prompt},
        {"answer_tokens", static_cast<int64_t>(answer.tokens.size())},
        {"stop_reason", ToString(answer.stop_reason)},
        {"tokens_per_second", answer.timings.decode_tokens_per_second()}};
    // A search at equal bytes may have read the prompt already: then this time means nothing.
    if (answer.n_reused == 0) {
      outcome.details.Add("first_token_ms", answer.timings.first_token_ms);
    }
    if (question_.prompt.truncated()) {
      outcome.details.Add("truncated_from", question_.prompt.n_untruncated);
    }
    return outcome;
  }

 private:
  Question question_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Question question) {
  return std::make_unique<QuestionWorkload>(std::move(question));
}

const Question* AsQuestion(const Workload& workload) {
  const auto* question = dynamic_cast<const QuestionWorkload*>(&workload);
  return question ? &question->question() : nullptr;
}

}  // namespace winnow::eval
