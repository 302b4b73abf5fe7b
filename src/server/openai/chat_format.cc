#include <utility>

#include "server/openai/formats.h"
#include "server/openai/probabilities.h"

namespace winnow::server {
namespace {

report::Value Logprobs(const tokenizer::Tokenizer& tokenizer, const Answer& answer,
                       std::span<const DrawnToken> drawn) {
  if (answer.asked.n_probs < 0) return {};
  return ChatLogprobs(tokenizer, drawn);
}

class ChatAnswers final : public AnswerFormat {
 public:
  explicit ChatAnswers(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  report::Value Whole(const Answer& answer) const override {
    report::List choices;
    for (const Choice& choice : answer.choices) {
      report::Record message = {{"role", "assistant"}};
      // Null beside tool calls, where nothing was said: clients tell by it.
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
      choices.emplace_back(report::Record{{"index", choice.index},
                                          {"message", std::move(message)},
                                          {"logprobs", Logprobs(tokenizer_, answer, choice.drawn)},
                                          {"finish_reason", FinishReason(choice)},
                                          {"kv", KvRecord(answer, choice)}});
    }
    report::Record body = Head(answer, "chat.completion", std::move(choices));
    body.Add("usage", UsageRecord(answer));
    body.Add("timings", TimingsRecord(answer, answer.choices[0]));
    body.Add("kv", KvRecord(answer, answer.choices[0]));
    if (!answer.warning.empty()) body.Add("warning", answer.warning);
    return body;
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
    if (delta.drawn != nullptr) logprobs = ChatLogprobs(tokenizer_, {delta.drawn, 1});
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
  static report::Record Head(const Answer& answer, const char* object, report::List choices) {
    return {{"id", answer.id},
            {"object", object},
            {"created", answer.created},
            {"model", answer.model},
            {"choices", std::move(choices)}};
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
