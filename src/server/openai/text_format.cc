#include <utility>

#include "server/openai/formats.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

class TextAnswers final : public AnswerFormat {
 public:
  TextAnswers(const tokenizer::Tokenizer& tokenizer, bool echo)
      : tokenizer_(tokenizer), echo_(echo) {}

  void AddProbabilities(const DrawnToken& token, Choice& choice) const override {
    choice.probabilities.resize(kTextProbabilities.size());
    const auto items = TextProbability(tokenizer_, token, choice.n_characters);
    for (size_t i = 0; i < items.size(); ++i) {
      AppendItem(choice.probabilities[i], report::ToJson(items[i]));
    }
  }

  std::string Whole(const Answer& answer) const override {
    std::string choices;
    for (const Choice& choice : answer.choices) {
      std::string record =
          report::ToJson(report::Record{{"index", choice.index},
                                        {"text", Echo(answer, choice) + choice.content},
                                        {"finish_reason", FinishReason(choice)},
                                        {"kv", KvRecord(answer, choice)}});
      AppendField(record, "logprobs", Logprobs(answer, choice));
      AppendItem(choices, record);
    }
    report::Record body = Head(answer);
    body.Add("usage", UsageRecord(answer));
    body.Add("timings", TimingsRecord(answer, answer.choices[0]));
    body.Add("kv", KvRecord(answer, answer.choices[0]));
    std::string json = report::ToJson(body);
    AppendField(json, "choices", ListFrom(choices));
    return json;
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
      auto items = TextProbability(tokenizer_, *delta.drawn, choice.n_characters);
      report::Record record;
      for (size_t i = 0; i < items.size(); ++i) {
        record.Add(kTextProbabilities[i], report::List{std::move(items[i])});
      }
      logprobs = std::move(record);
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

  static std::string Logprobs(const Answer& answer, const Choice& choice) {
    if (answer.asked.n_probs < 0) return "null";
    std::string record;
    for (size_t i = 0; i < kTextProbabilities.size(); ++i) {
      const std::string_view items =
          choice.probabilities.empty() ? std::string_view() : choice.probabilities[i];
      record.append(i == 0 ? "{" : ",").append("\"").append(kTextProbabilities[i]);
      record.append("\":").append(ListFrom(items));
    }
    return record + "}";
  }

  static report::Record Head(const Answer& answer) {
    return {{"id", answer.id},
            {"object", "text_completion"},
            {"created", answer.created},
            {"model", answer.model}};
  }
  static report::Record Head(const Answer& answer, report::List choices) {
    report::Record head = Head(answer);
    head.Add("choices", std::move(choices));
    return head;
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
