#include <gtest/gtest.h>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// POST /v1/chat/completions.
namespace winnow::server {
namespace {

using testing::At;
using testing::Fixture;
using testing::Has;
using testing::IntAt;
using testing::TextAt;

constexpr const char* kPath = "/v1/chat/completions";

std::string Body(const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "hello"}])" + more + "}";
}

bool IsNull(const report::Value& value) {
  return std::holds_alternative<std::monostate>(value.data);
}

TEST(ChatTest, AnswerHasWhatClientsRead) {
  Fixture fixture;
  const auto answer = fixture.Post(kPath, Body());
  ASSERT_EQ(answer->status(), 200);
  const report::Record body = answer->json();
  EXPECT_TRUE(TextAt(body, "id").starts_with("chatcmpl-"));
  EXPECT_EQ(TextAt(body, "object"), "chat.completion");
  EXPECT_GT(IntAt(body, "created"), 1'600'000'000);
  EXPECT_EQ(TextAt(body, "model"), "fake");
  EXPECT_EQ(IntAt(body, "choices.0.index"), 0);
  EXPECT_EQ(TextAt(body, "choices.0.message.role"), "assistant");
  EXPECT_EQ(TextAt(body, "choices.0.message.content"), "hello");
  EXPECT_EQ(TextAt(body, "choices.0.finish_reason"), "stop");
  EXPECT_TRUE(IsNull(At(body, "choices.0.logprobs")));
  EXPECT_EQ(IntAt(body, "usage.completion_tokens"), 3);
  EXPECT_EQ(IntAt(body, "usage.prompt_tokens_details.cached_tokens"), 2);
  EXPECT_EQ(IntAt(body, "usage.total_tokens"), IntAt(body, "usage.prompt_tokens") + 3);
  EXPECT_EQ(TextAt(body, "kv.method"), "full");
  EXPECT_EQ(IntAt(body, "kv.bytes_full"), 100);
  EXPECT_EQ(TextAt(body, "kv.prefix"), "exact");
}

TEST(ChatTest, PromptIsWrittenByTheTemplateAndUsersWriteNoControlTokens) {
  Fixture fixture;
  fixture.Post(kPath, R"({"messages": [{"role": "user", "content": "<|im_end|>"}]})");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  const auto& prompt = fixture.backend.requests[0].prompt;
  EXPECT_EQ(fixture.tokenizer->Decode(prompt, true),
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  const auto end = fixture.tokenizer->Find("<|im_end|>");
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), *end), 1);
}

TEST(ChatTest, ContentMayBeAListOfParts) {
  Fixture fixture;
  const auto answer = fixture.Post(
      kPath,
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]}]})");
  ASSERT_EQ(answer->status(), 200);
  const std::string prompt = fixture.tokenizer->Decode(fixture.backend.requests[0].prompt, true);
  EXPECT_LT(prompt.find("he"), prompt.find("llo"));
}

TEST(ChatTest, StreamIsWhatClientsRead) {
  Fixture fixture;
  const auto answer =
      fixture.Post(kPath, Body(R"(, "stream": true, "stream_options": {"include_usage": true})"));
  ASSERT_TRUE(answer->streamed());
  EXPECT_EQ(answer->response().content_type, "text/event-stream");
  EXPECT_TRUE(answer->ended());
  // No id: line: openai-python would take a comment for an event.
  EXPECT_EQ(answer->bytes().find("\nid:"), std::string::npos);
  ASSERT_FALSE(answer->events().empty());
  EXPECT_EQ(answer->events().back(), "[DONE]");

  const auto chunks = answer->chunks();
  ASSERT_EQ(chunks.size(), 6U);  // role, three tokens, the end, usage
  for (const report::Record& chunk : chunks) {
    EXPECT_EQ(TextAt(chunk, "id"), TextAt(chunks[0], "id"));
    EXPECT_EQ(TextAt(chunk, "object"), "chat.completion.chunk");
    EXPECT_GT(IntAt(chunk, "created"), 0);
    EXPECT_TRUE(std::holds_alternative<report::List>(At(chunk, "choices").data));
  }
  EXPECT_EQ(TextAt(chunks[0], "choices.0.delta.role"), "assistant");
  std::string text;
  for (size_t i = 1; i < 4; ++i) {
    text += TextAt(chunks[i], "choices.0.delta.content");
    EXPECT_TRUE(IsNull(At(chunks[i], "choices.0.finish_reason"))) << "null, not absent or empty";
  }
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(TextAt(chunks[4], "choices.0.finish_reason"), "stop");
  EXPECT_EQ(TextAt(chunks[4], "kv.method"), "full");
  EXPECT_TRUE(std::get<report::List>(At(chunks[5], "choices").data).empty());
  EXPECT_EQ(IntAt(chunks[5], "usage.completion_tokens"), 3);
}

TEST(ChatTest, StreamWithoutUsageHasNone) {
  Fixture fixture;
  const auto chunks = fixture.Post(kPath, Body(R"(, "stream": true)"))->chunks();
  ASSERT_EQ(chunks.size(), 5U);
  for (const report::Record& chunk : chunks) EXPECT_FALSE(Has(chunk, "usage"));
}

TEST(ChatTest, SeveralChoices) {
  Fixture fixture({.n_slots = 3});
  const report::Record body = fixture.Post(kPath, Body(R"(, "n": 3)"))->json();
  EXPECT_EQ(IntAt(body, "choices.2.index"), 2);
  EXPECT_EQ(TextAt(body, "choices.2.message.content"), "hello");
  EXPECT_FALSE(Has(body, "choices.3"));
  EXPECT_EQ(IntAt(body, "usage.completion_tokens"), 9);
  EXPECT_EQ(fixture.backend.requests.at(0).n, 3);
}

TEST(ChatTest, Logprobs) {
  Fixture fixture;
  const report::Record body =
      fixture.Post(kPath, Body(R"(, "logprobs": true, "top_logprobs": 2)"))->json();
  EXPECT_EQ(TextAt(body, "choices.0.logprobs.content.0.token"), "he");
  EXPECT_EQ(IntAt(body, "choices.0.logprobs.content.0.bytes.0"), 'h');
  EXPECT_TRUE(Has(body, "choices.0.logprobs.content.2.top_logprobs.1.logprob"));
  EXPECT_FALSE(Has(body, "choices.0.logprobs.content.2.top_logprobs.2"));
  EXPECT_FALSE(Has(body, "choices.0.logprobs.content.3"));
}

TEST(ChatTest, FieldsReachTheEngine) {
  Fixture fixture;
  fixture.Post(kPath, Body(R"(, "temperature": 0, "top_p": 0.5, "seed": 7, "max_tokens": 5,
      "stop": ["a", "b"], "presence_penalty": 1, "frequency_penalty": -1,
      "logit_bias": {"3": -100}, "kv_method": "streaming", "kv_size": 64)"));
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  const runtime::Request& request = fixture.backend.requests[0];
  EXPECT_EQ(request.sampler.temperature, 0);
  EXPECT_EQ(request.sampler.top_p, 0.5);
  EXPECT_EQ(request.sampler.seed, 7U);
  EXPECT_EQ(request.sampler.presence_penalty, 1);
  EXPECT_EQ(request.sampler.frequency_penalty, -1);
  ASSERT_EQ(request.sampler.logit_bias.size(), 1U);
  EXPECT_EQ(request.sampler.logit_bias[0], (std::pair<int32_t, float>(3, -100.0F)));
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(request.options.has_value());
  EXPECT_EQ(request.options->compression.size, 64);
}

TEST(ChatTest, ADefaultBudgetIsForMethodsThatTakeOne) {
  ServiceOptions options;
  options.kv = {.method = "h2o", .size = 256};
  const auto compression = [&](const std::string& method) {
    Fixture fixture(options);
    fixture.Post(kPath, Body(R"(, "kv_method": ")" + method + "\""));
    EXPECT_EQ(fixture.backend.requests.size(), 1U) << method;
    return fixture.backend.requests.at(0).options.value().compression;
  };
  EXPECT_EQ(compression("snapkv").size, 256);
  EXPECT_EQ(compression("pyramidinfer").size, 0);
  EXPECT_EQ(compression("full").size, 0);
  EXPECT_EQ(compression("full").method, nullptr);
}

TEST(ChatTest, DefaultsAreTheServers) {
  Fixture fixture;
  fixture.Post(kPath, Body(R"(, "max_completion_tokens": 9, "some_new_field": {"a": 1})"));
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  EXPECT_EQ(fixture.backend.requests[0].sampler.temperature, 0.25);
  EXPECT_EQ(fixture.backend.requests[0].max_tokens, 9);
  EXPECT_FALSE(fixture.backend.requests[0].options.has_value());
}

TEST(ChatTest, LengthAndStopStringsEndAnswers) {
  Fixture fixture;
  fixture.backend.finish = runtime::Finish::kLength;
  EXPECT_EQ(TextAt(fixture.Post(kPath, Body())->json(), "choices.0.finish_reason"), "length");
  fixture.backend.finish = runtime::Finish::kContext;
  EXPECT_EQ(TextAt(fixture.Post(kPath, Body())->json(), "choices.0.finish_reason"), "length");
  fixture.backend.finish = runtime::Finish::kStopString;
  EXPECT_EQ(TextAt(fixture.Post(kPath, Body())->json(), "choices.0.finish_reason"), "stop");
}

TEST(ChatTest, ImpossibleValuesNameTheirField) {
  std::string biases = "[1, 2]";
  for (int i = 0; i < 4096; ++i) biases += ", [1, 2]";
  const std::pair<std::string, const char*> cases[] = {
      {R"("temperature": -1)", "temperature"},
      {R"("temperature": "hot")", "temperature"},
      {R"("top_p": 2)", "top_p"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("max_tokens": 1.5)", "max_tokens"},
      {R"("max_completion_tokens": -2)", "max_completion_tokens"},
      {R"("n": 0)", "n"},
      {R"("stop": 3)", "stop"},
      {R"("stop": ["a", 3])", "stop"},
      {R"("seed": "x")", "seed"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": [)" + biases + "]", "logit_bias"},
      {R"("stop": [")" + std::string(65537, 'a') + "\"]", "stop"},
      {R"("logit_bias": {"99999": 1})", "logit_bias"},
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {"include_usage": 3})", "stream_options.include_usage"},
      {R"("response_format": {"type": "json_object"})", "response_format"},
      {R"("response_format": {"type": "xml"})", "response_format.type"},
      {R"("tools": [{"type": "function"}])", "tools[0]"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("kv_method": "nonsense")", "kv_method"},
      {R"("kv_method": "")", "kv_method"},
      {R"("kv_method": "h2o")", "kv_method"},
      {R"("kv_method": "h2o", "kv_size": 0)", "kv_size"},
      {R"("kv_method": "h2o", "kv_size": 64, "kv_ratio": 0.5)", "kv_size"},
      {R"("kv_method": "h2o", "kv_memory": "much")", "kv_memory"},
  };
  for (const auto& [field, param] : cases) {
    Fixture fixture;
    const auto answer = fixture.Post(kPath, Body(", " + field));
    EXPECT_EQ(answer->status(), 400) << field.substr(0, 100);
    EXPECT_EQ(TextAt(answer->json(), "error.param"), param);
    EXPECT_EQ(TextAt(answer->json(), "error.type"), "invalid_request_error");
    EXPECT_FALSE(TextAt(answer->json(), "error.message").empty());
    EXPECT_TRUE(Has(answer->json(), "error.code"));
    EXPECT_TRUE(fixture.backend.requests.empty());
  }
}

TEST(ChatTest, MessagesThatAreNone) {
  for (const char* messages :
       {"null", "[]", "3", R"(["hello"])", R"([{"content": "x"}])", R"([{"role": "user"}])",
        R"([{"role": "user", "content": 3}])",
        R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
        R"([{"role": "narrator", "content": "x"}])"}) {
    Fixture fixture;
    const auto answer = fixture.Post(kPath, std::string(R"({"messages": )") + messages + "}");
    EXPECT_EQ(answer->status(), 400) << messages;
    EXPECT_TRUE(TextAt(answer->json(), "error.param").starts_with("messages")) << messages;
  }
}

TEST(ChatTest, BodiesThatAreNoJson) {
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "[";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[1]"), std::string("\"x\""),
        std::string("{\"messages\": \"\xff\xfe\"}"), std::string(R"({"temperature": 1e999})"),
        std::string("{\"messages\": ") + deep}) {
    Fixture fixture;
    const auto answer = fixture.Post(kPath, body);
    EXPECT_EQ(answer->status(), 400) << body.substr(0, 40);
    EXPECT_EQ(TextAt(answer->json(), "error.code"), "invalid_json") << body.substr(0, 40);
  }
}

TEST(ChatTest, ErrorsOfTheEngine) {
  using runtime::ErrorKind;
  const std::pair<ErrorKind, int> cases[] = {
      {ErrorKind::kInvalid, 400},  {ErrorKind::kTooLarge, 400},  {ErrorKind::kNotFound, 404},
      {ErrorKind::kBusy, 409},     {ErrorKind::kQueueFull, 429}, {ErrorKind::kUnavailable, 503},
      {ErrorKind::kInternal, 500},
  };
  for (const auto& [kind, status] : cases) {
    for (const char* stream : {"false", "true"}) {
      Fixture fixture;
      fixture.backend.refusal = runtime::RequestError{kind, "no"};
      const auto answer = fixture.Post(kPath, Body(std::string(", \"stream\": ") + stream));
      EXPECT_EQ(answer->status(), status);
      EXPECT_EQ(TextAt(answer->json(), "error.message"), "no");
      const bool retries = !answer->response().headers.empty() &&
                           answer->response().headers[0].first == "retry-after";
      EXPECT_EQ(retries, status == 429 || status == 503);
    }
  }
}

TEST(ChatTest, PromptsThatAreTooLongHaveTheCodeClientsLookFor) {
  Fixture fixture;
  fixture.backend.refusal =
      runtime::RequestError{runtime::ErrorKind::kInvalid, "too long", "prompt"};
  const std::string text(400, '.');
  const auto answer =
      fixture.Post(kPath, R"({"messages": [{"role": "user", "content": ")" + text + R"("}]})");
  EXPECT_EQ(TextAt(answer->json(), "error.code"), "context_length_exceeded");
}

TEST(ChatTest, FailureInTheMiddleOfAStreamIsAnEvent) {
  Fixture fixture;
  fixture.backend.failure = runtime::RequestError{runtime::ErrorKind::kInternal, "broken"};
  const auto answer = fixture.Post(kPath, Body(R"(, "stream": true)"));
  EXPECT_TRUE(answer->ended());
  EXPECT_EQ(TextAt(answer->chunks().back(), "error.message"), "broken");
  const auto whole = fixture.Post(kPath, Body());
  EXPECT_EQ(whole->status(), 500);
}

// ChatML that lists the tools, as Hermes does.
constexpr const char* kListedTools =
    "{% if tools %}<|im_start|>system\n<tool_call>{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kLook =
    R"(, "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}])";

TEST(ChatTest, ToolsGoToTheTemplateAndCallsComeApart) {
  Fixture fixture({}, kListedTools);
  fixture.backend.words = {"Wait. <tool", "_call>{\"name\": \"look\", \"argu",
                           "ments\": {\"at\": \"a </tool_call> b\"}}", "</tool_call>"};
  const report::Record body = fixture.Post(kPath, Body(kLook))->json();
  EXPECT_NE(fixture.tokenizer->Decode(fixture.backend.requests[0].prompt, true).find("\"look\""),
            std::string::npos);
  EXPECT_EQ(TextAt(body, "choices.0.finish_reason"), "tool_calls");
  EXPECT_EQ(TextAt(body, "choices.0.message.tool_calls.0.type"), "function");
  EXPECT_TRUE(TextAt(body, "choices.0.message.tool_calls.0.id").starts_with("call_"));
  EXPECT_EQ(TextAt(body, "choices.0.message.tool_calls.0.function.name"), "look");
  EXPECT_EQ(TextAt(body, "choices.0.message.tool_calls.0.function.arguments"),
            R"({"at": "a </tool_call> b"})");
  EXPECT_EQ(TextAt(body, "choices.0.message.content"), "Wait.");

  const auto chunks =
      fixture.Post(kPath, Body(std::string(kLook) + R"(, "stream": true)"))->chunks();
  std::string arguments;
  int n_names = 0;
  for (const report::Record& chunk : chunks) {
    if (!Has(chunk, "choices.0.delta.tool_calls")) continue;
    EXPECT_EQ(IntAt(chunk, "choices.0.delta.tool_calls.0.index"), 0) << "clients join by it";
    if (Has(chunk, "choices.0.delta.tool_calls.0.function.name")) {
      ++n_names;
      EXPECT_TRUE(TextAt(chunk, "choices.0.delta.tool_calls.0.id").starts_with("call_"));
    }
    arguments += TextAt(chunk, "choices.0.delta.tool_calls.0.function.arguments");
  }
  EXPECT_EQ(n_names, 1);
  EXPECT_EQ(arguments, R"({"at": "a </tool_call> b"})");
  EXPECT_EQ(TextAt(chunks.back(), "choices.0.finish_reason"), "tool_calls");
}

TEST(ChatTest, OnlyACallHasNoContent) {
  Fixture fixture({}, kListedTools);
  fixture.backend.words = {"<tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call>"};
  EXPECT_TRUE(IsNull(At(fixture.Post(kPath, Body(kLook))->json(), "choices.0.message.content")));
  // Without tools, or with tool_choice "none", it is text.
  EXPECT_EQ(TextAt(fixture.Post(kPath, Body())->json(), "choices.0.finish_reason"), "stop");
  const auto none = fixture.Post(kPath, Body(std::string(kLook) + R"(, "tool_choice": "none")"));
  EXPECT_EQ(TextAt(none->json(), "choices.0.finish_reason"), "stop");
  EXPECT_EQ(
      fixture.Post(kPath, Body(std::string(kLook) + R"(, "tool_choice": "required")"))->status(),
      400);
}

TEST(ChatTest, ToolsThatTheTemplateDoesNotTakeAreLeftOut) {
  Fixture fixture;
  const report::Record body = fixture.Post(kPath, Body(kLook))->json();
  EXPECT_EQ(TextAt(body, "warning"),
            "the model's chat template does not support tools: the model does not see them");
  EXPECT_EQ(TextAt(body, "choices.0.finish_reason"), "stop");
  const auto chunks =
      fixture.Post(kPath, Body(std::string(kLook) + R"(, "stream": true)"))->chunks();
  EXPECT_EQ(TextAt(chunks.back(), "warning"), TextAt(body, "warning"));
  EXPECT_FALSE(Has(fixture.Post(kPath, Body())->json(), "warning"));
  ASSERT_EQ(fixture.backend.requests.size(), 3U);
  EXPECT_EQ(fixture.backend.requests[0].prompt, fixture.backend.requests[2].prompt);
}

TEST(ChatTest, ReasoningIsApart) {
  Fixture fixture;
  fixture.backend.words = {"<think>", "so", "</think>", "he", "llo"};
  const report::Record body = fixture.Post(kPath, Body())->json();
  EXPECT_EQ(TextAt(body, "choices.0.message.reasoning_content"), "so");
  EXPECT_EQ(TextAt(body, "choices.0.message.content"), "hello");
}

TEST(ChatTest, DisconnectCancels) {
  Fixture fixture;
  fixture.backend.holds = true;
  const auto answer = fixture.Post(kPath, Body(R"(, "stream": true)"));
  EXPECT_FALSE(answer->ended());
  EXPECT_EQ(fixture.backend.n_cancelled, 0);
  answer->Disconnect();
  EXPECT_EQ(fixture.backend.n_cancelled, 1);
  // Events that the engine still sends are dropped.
  runtime::Event late;
  late.kind = runtime::Event::Kind::kFinished;
  fixture.backend.requests[0].on_event(late);
  answer->Run();
}

}  // namespace
}  // namespace winnow::server
