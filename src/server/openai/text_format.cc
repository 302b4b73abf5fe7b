#include <utility>

#include "server/openai/formats.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

class TextAnswers final : public AnswerFormat {
 public:
  TextAnswers(const tokenizer::Tokenizer& tokenizer, bool echo)
      : tokenizer_(tokenizer), echo_(echo) {}

  report::Value Whole(const Answer& answer) const override {
    report::List choices;
    for (const Choice& choice : answer.choices) {
      report::Value logprobs;
      if (answer.asked.n_probs >= 0) logprobs = TextLogprobs(tokenizer_, choice.drawn, 0);
      choices.emplace_back(report::Record{{"index", choice.index},
                                          {"text", Echo(answer, choice) + choice.content},
                                          {"logprobs", std::move(logprobs)},
                                          {"finish_reason", FinishReason(choice)},
                                          {"kv", KvRecord(answer, choice)}});
    }
    report::Record body = Head(answer, std::move(choices));
    body.Add("usage", UsageRecord(answer));
    body.Add("timings", TimingsRecord(answer, answer.choices[0]));
    body.Add("kv", KvRecord(answer, answer.choices[0]));
    return body;
  }

  std::optional<report::Record> First(const Answer& answer, const Choice& choice) const override {
    if (!echo_) return std::nullopt;
    return Chunk(answer, choice, Echo(answer, choice), {}, {});
  }

  std::optional<report::Record> Next(const Answer& answer, const Choice& choice,
                                     const Delta& delta) const override {
    if (delta.text.content.empty() && delta.drawn == nullptr) return std::nullopt;
    report::Value logprobs;
    if (delta.drawn != nullptr) {
      const auto offset = static_cast<int64_t>(choice.content.size() - delta.text.content.size());
      logprobs = TextLogprobs(tokenizer_, {delta.drawn, 1}, offset);
    }
    report::Record chunk = Chunk(answer, choice, delta.text.content, std::move(logprobs), {});
    if (answer.asked.timings_per_token) chunk.Add("timings", TimingsRecord(answer, choice));
    return chunk;
  }

  report::Record Last(const Answer& answer, const Choice& choice) const override {
    report::Record chunk = Chunk(answer, choice, "", {}, FinishReason(choice));
    chunk.Add("timings", TimingsRecord(answer, choice));
    chunk.Add("kv", KvRecord(answer, choice));
    return chunk;
  }

  std::optional<report::Record> Usage(const Answer& answer) const override {
    if (!answer.asked.include_usage) return std::nullopt;
    report::Record chunk = Head(answer, {});
    chunk.Add("usage", UsageRecord(answer));
    return chunk;
  }

  std::optional<report::Record> Progress(const Answer& answer, const Choice& choice,
                                         const runtime::Event& prefill, double ms) const override {
    report::Record chunk = Chunk(answer, choice, "", {}, {});
    chunk.Add("prompt_progress", ProgressRecord(answer, choice, prefill, ms));
    return chunk;
  }

  bool ends_with_done() const override { return true; }

 private:
  std::string Echo(const Answer& answer, const Choice& choice) const {
    return echo_ ? answer.prompts[choice.prompt].prompt.text : std::string();
  }

  static report::Record Head(const Answer& answer, report::List choices) {
    return {{"id", answer.id},
            {"object", "text_completion"},
            {"created", answer.created},
            {"model", answer.model},
            {"choices", std::move(choices)}};
  }

  static report::Record Chunk(const Answer& answer, const Choice& choice, std::string text,
                              report::Value logprobs, report::Value finish_reason) {
    return Head(answer, {report::Record{{"index", choice.index},
                                        {"text", std::move(text)},
                                        {"logprobs", std::move(logprobs)},
                                        {"finish_reason", std::move(finish_reason)}}});
  }

  const tokenizer::Tokenizer& tokenizer_;
  bool echo_;
};

}  // namespace

std::unique_ptr<const AnswerFormat> TextFormat(const tokenizer::Tokenizer& tokenizer, bool echo) {
  return std::make_unique<TextAnswers>(tokenizer, echo);
}

}  // namespace winnow::server
