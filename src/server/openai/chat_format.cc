#include <utility>

#include "server/openai/formats.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

class ChatAnswers final : public AnswerFormat {
 public:
  explicit ChatAnswers(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void AddProbabilities(const DrawnToken& token, Choice& choice) const override {
    choice.probabilities.resize(1);
    AppendItem(choice.probabilities[0], report::ToJson(ChatProbability(tokenizer_, token)));
  }

  std::string Whole(const Answer& answer) const override {
    std::string choices;
    for (const Choice& choice : answer.choices) {
      report::Record message = {{"role", "assistant"}};
      // Null for tool calls without text: clients check for it.
      const bool silent = choice.content.empty() && !choice.tool_calls.empty();
      message.Add("content", silent ? report::Value() : report::Value(choice.content));
      if (!choice.reasoning.empty()) message.Add("reasoning_content", choice.reasoning);
      if (!choice.tool_calls.empty()) {
        report::List calls;
        for (const ToolCall& call : choice.tool_calls) {
          calls.emplace_back(report::Record{
              {"id", call.id},
              {"type", "function"},
              {"function", report::Record{{"name", call.name}, {"arguments", call.arguments}}}});
        }
        message.Add("tool_calls", std::move(calls));
      }
      std::string record = report::ToJson(report::Record{{"index", choice.index},
                                                         {"message", std::move(message)},
                                                         {"finish_reason", FinishReason(choice)},
                                                         {"kv", KvRecord(answer, choice)}});
      AppendField(record, "logprobs", Logprobs(answer, choice));
      AppendItem(choices, record);
    }
    report::Record body = Head(answer, "chat.completion");
    body.Add("usage", UsageRecord(answer));
    body.Add("timings", TimingsRecord(answer, answer.choices[0]));
    body.Add("kv", KvRecord(answer, answer.choices[0]));
    if (!answer.warning.empty()) body.Add("warning", answer.warning);
    std::string json = report::ToJson(body);
    AppendField(json, "choices", ListFrom(choices));
    return json;
  }

  std::optional<report::Record> First(const Answer& answer, const Choice& choice) const override {
    return Chunk(answer, choice, {{"role", "assistant"}, {"content", ""}}, {}, {});
  }

  std::optional<report::Record> Next(const Answer& answer, const Choice& choice,
                                     const Delta& delta) const override {
    report::Record fields;
    if (!delta.text.reasoning.empty()) fields.Add("reasoning_content", delta.text.reasoning);
    if (!delta.text.content.empty()) fields.Add("content", delta.text.content);
    if (!delta.text.tool_calls.empty()) {
      report::List calls;
      for (const chat::ToolCallDelta& call : delta.text.tool_calls) calls.emplace_back(Call(call));
      fields.Add("tool_calls", std::move(calls));
    }
    if (fields.fields.empty() && delta.drawn == nullptr) return std::nullopt;
    report::Value logprobs;
    if (delta.drawn != nullptr) {
      logprobs =
          report::Record{{"content", report::List{ChatProbability(tokenizer_, *delta.drawn)}},
                         {"refusal", report::Value()}};
    }
    report::Record chunk = Chunk(answer, choice, std::move(fields), std::move(logprobs), {});
    if (answer.asked.timings_per_token) chunk.Add("timings", TimingsRecord(answer, choice));
    return chunk;
  }

  report::Record Last(const Answer& answer, const Choice& choice) const override {
    report::Record chunk = Chunk(answer, choice, {}, {}, FinishReason(choice));
    chunk.Add("timings", TimingsRecord(answer, choice));
    chunk.Add("kv", KvRecord(answer, choice));
    if (!answer.warning.empty()) chunk.Add("warning", answer.warning);
    return chunk;
  }

  std::optional<report::Record> Usage(const Answer& answer) const override {
    if (!answer.asked.include_usage) return std::nullopt;
    report::Record chunk = Head(answer, "chat.completion.chunk", {});
    chunk.Add("usage", UsageRecord(answer));
    return chunk;
  }

  std::optional<report::Record> Progress(const Answer& answer, const Choice& choice,
                                         const runtime::Event& prefill, double ms) const override {
    report::Record chunk = Chunk(answer, choice, {}, {}, {});
    chunk.Add("prompt_progress", ProgressRecord(answer, choice, prefill, ms));
    return chunk;
  }

  bool ends_with_done() const override { return true; }

 private:
  static std::string Logprobs(const Answer& answer, const Choice& choice) {
    if (answer.asked.n_probs < 0) return "null";
    std::string record = R"({"refusal":null})";
    const std::string_view items =
        choice.probabilities.empty() ? std::string_view() : choice.probabilities[0];
    AppendField(record, "content", ListFrom(items));
    return record;
  }

  static report::Record Head(const Answer& answer, const char* object) {
    return {{"id", answer.id},
            {"object", object},
            {"created", answer.created},
            {"model", answer.model}};
  }
  static report::Record Head(const Answer& answer, const char* object, report::List choices) {
    report::Record head = Head(answer, object);
    head.Add("choices", std::move(choices));
    return head;
  }

  static report::Record Chunk(const Answer& answer, const Choice& choice, report::Record delta,
                              report::Value logprobs, report::Value finish_reason) {
    return Head(answer, "chat.completion.chunk",
                {report::Record{{"index", choice.index},
                                {"delta", std::move(delta)},
                                {"logprobs", std::move(logprobs)},
                                {"finish_reason", std::move(finish_reason)}}});
  }

  static report::Record Call(const chat::ToolCallDelta& call) {
    report::Record function;
    report::Record record = {{"index", call.index}};
    if (!call.id.empty()) {
      record.Add("id", call.id);
      record.Add("type", "function");
      function.Add("name", call.name);
    }
    function.Add("arguments", call.arguments);
    record.Add("function", std::move(function));
    return record;
  }

  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace

std::unique_ptr<const AnswerFormat> ChatFormat(const tokenizer::Tokenizer& tokenizer) {
  return std::make_unique<ChatAnswers>(tokenizer);
}

}  // namespace winnow::server
