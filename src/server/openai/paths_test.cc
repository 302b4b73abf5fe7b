#include <gtest/gtest.h>

#include <map>

#include "report/parse_json.h"
#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// Everything but chat: other completions, text tools, pages about the server, keys, origins.
namespace winnow::server {
namespace {

using testing::At;
using testing::FakeExchange;
using testing::Fixture;
using testing::Has;
using testing::IntAt;
using testing::TextAt;

std::string FindHeader(const FakeExchange& exchange, std::string_view name) {
  for (const auto& [key, value] : exchange.response().headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(TextCompletionsTest, AnswerAndLogprobs) {
  Fixture fixture;
  const report::Record body =
      fixture.Post("/v1/completions", R"({"prompt": "he", "logprobs": 1, "echo": false})")->json();
  EXPECT_TRUE(TextAt(body, "id").starts_with("cmpl-"));
  EXPECT_EQ(TextAt(body, "object"), "text_completion");
  EXPECT_EQ(TextAt(body, "choices.0.text"), "hello");
  EXPECT_EQ(TextAt(body, "choices.0.logprobs.tokens.1"), "ll");
  EXPECT_EQ(IntAt(body, "choices.0.logprobs.text_offset.2"), 4);
  EXPECT_TRUE(Has(body, "choices.0.logprobs.token_logprobs.2"));
  EXPECT_TRUE(Has(body, "choices.0.logprobs.top_logprobs.2"));
}

TEST(TextCompletionsTest, SeveralPromptsAreChoicesInOrder) {
  Fixture fixture({.n_slots = 2});
  const report::Record body =
      fixture.Post("/v1/completions", R"({"prompt": ["a", "b"], "n": 2, "echo": true})")->json();
  EXPECT_EQ(TextAt(body, "choices.0.text"), "ahello");
  EXPECT_EQ(TextAt(body, "choices.1.text"), "ahello");
  EXPECT_EQ(TextAt(body, "choices.2.text"), "bhello");
  EXPECT_EQ(IntAt(body, "choices.3.index"), 3);
}

TEST(TextCompletionsTest, PromptsOfTokens) {
  Fixture fixture;
  EXPECT_EQ(fixture.Post("/v1/completions", R"({"prompt": [256, 257]})")->status(), 200);
  EXPECT_EQ(fixture.backend.requests.at(0).prompt, (std::vector<int32_t>{256, 257}));
  EXPECT_EQ(fixture.Post("/v1/completions", R"({"prompt": [[256], [257]]})")->status(), 200);
  EXPECT_EQ(fixture.backend.requests.size(), 3U);
  for (const char* wrong : {"[-1]", "[99999]", "[1.5]", "\"\"", "[]", "{}", "[[1], 2]", "[null]"}) {
    const auto answer =
        fixture.Post("/v1/completions", std::string(R"({"prompt": )") + wrong + "}");
    EXPECT_EQ(answer->status(), 400) << wrong;
    EXPECT_EQ(TextAt(answer->json(), "error.param"), "prompt") << wrong;
  }
  EXPECT_EQ(fixture.Post("/v1/completions", "{}")->status(), 400);
}

TEST(TextCompletionsTest, Stream) {
  Fixture fixture;
  const auto answer = fixture.Post("/v1/completions", R"({"prompt": "a", "stream": true})");
  EXPECT_EQ(answer->events().back(), "[DONE]");
  std::string text;
  for (const report::Record& chunk : answer->chunks()) text += TextAt(chunk, "choices.0.text");
  EXPECT_EQ(text, "hello");
}

TEST(TextCompletionsTest, WhatIsNotThereIsRefused) {
  Fixture fixture;
  for (const char* field : {R"("suffix": "x")", R"("best_of": 3)", R"("logprobs": 2, "echo": true)",
                            R"("grammar": "root ::= x")"}) {
    EXPECT_EQ(
        fixture.Post("/v1/completions", std::string(R"({"prompt": "a", )") + field + "}")->status(),
        400)
        << field;
  }
}

TEST(TextCompletionsTest, ABodyHasAtMostAMillionValues) {
  Fixture fixture;
  const auto answer_to = [&](size_t n_values) {
    std::string body = R"({"prompt": "a", "unknown": [0)";
    for (size_t i = 4; i < n_values; ++i) body += ",0";  // the object, the text, the list, one 0
    return fixture.Post("/v1/completions", body + "]}");
  };
  constexpr size_t kMaxValues = size_t{1} << 20;
  EXPECT_EQ(answer_to(kMaxValues)->status(), 200);
  const auto refused = answer_to(kMaxValues + 1);
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(TextAt(refused->json(), "error.code"), "invalid_json");
  EXPECT_EQ(TextAt(refused->json(), "error.message"), "the body: more than 1048576 values");
}

TEST(NativeCompletionTest, AnswerHasLlamaServersFields) {
  Fixture fixture;
  fixture.backend.finish = runtime::Finish::kStopString;
  fixture.backend.stopping_word = "end";
  const report::Record body =
      fixture
          .Post("/completion",
                R"({"prompt": "he", "n_predict": 4, "n_probs": 1, "return_tokens": true})")
          ->json();
  EXPECT_EQ(TextAt(body, "content"), "hello");
  EXPECT_EQ(IntAt(body, "tokens.0"), 256);
  EXPECT_EQ(TextAt(body, "stop_type"), "word");
  EXPECT_EQ(TextAt(body, "stopping_word"), "end");
  EXPECT_EQ(IntAt(body, "tokens_predicted"), 3);
  EXPECT_EQ(IntAt(body, "tokens_evaluated"), 1);
  EXPECT_EQ(IntAt(body, "timings.cache_n"), 2);
  EXPECT_EQ(IntAt(body, "generation_settings.n_predict"), 4);
  EXPECT_TRUE(Has(body, "completion_probabilities.0.top_logprobs.0.id"));
  EXPECT_TRUE(Has(body, "truncated"));
  EXPECT_TRUE(Has(body, "tokens_cached"));
}

TEST(NativeCompletionTest, StreamEndsWithItsLastObject) {
  Fixture fixture;
  const auto answer = fixture.Post("/completion", R"({"prompt": "a", "stream": true})");
  const auto events = answer->events();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_NE(events.back(), "[DONE]");
  EXPECT_EQ(std::get<bool>(At(answer->chunks().front(), "stop").data), false);
  EXPECT_EQ(std::get<bool>(At(answer->chunks().back(), "stop").data), true);
}

TEST(NativeCompletionTest, ProgressOfThePrompt) {
  Fixture fixture;
  const auto chunks =
      fixture.Post("/completion", R"({"prompt": "a", "stream": true, "return_progress": true})")
          ->chunks();
  EXPECT_EQ(IntAt(chunks.at(0), "prompt_progress.total"), 1);
}

TEST(StreamTest, EveryPathTellsProgressAndTimings) {
  const std::string asked =
      R"("stream": true, "return_progress": true, "timings_per_token": true})";
  for (const auto& [path, prompt] : std::map<std::string, std::string>{
           {"/completion", R"({"prompt": "hell", )"},
           {"/v1/completions", R"({"prompt": "hell", )"},
           {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hell"}], )"}}) {
    SCOPED_TRACE(path);
    Fixture fixture;
    int n_progress = 0;
    int64_t n_predicted = 0;
    for (const report::Record& chunk : fixture.Post(path, prompt + asked)->chunks()) {
      if (Has(chunk, "prompt_progress")) {
        ++n_progress;
        EXPECT_EQ(IntAt(chunk, "prompt_progress.processed"), IntAt(chunk, "prompt_progress.total"));
        EXPECT_EQ(IntAt(chunk, "prompt_progress.cache"), 2);
      }
      if (!Has(chunk, "timings")) continue;
      EXPECT_GE(IntAt(chunk, "timings.predicted_n"), n_predicted);
      n_predicted = IntAt(chunk, "timings.predicted_n");
      EXPECT_EQ(IntAt(chunk, "timings.prompt_n"),
                std::ssize(fixture.backend.requests[0].prompt) - 2);
      if (n_predicted == 2) {
        EXPECT_GT(std::get<double>(At(chunk, "timings.prompt_ms").data), 0);
        EXPECT_GT(std::get<double>(At(chunk, "timings.predicted_ms").data), 0);
      }
    }
    EXPECT_EQ(n_progress, 1);
    EXPECT_EQ(n_predicted, 3);
  }
  int n_timings = 0;
  for (const report::Record& chunk :
       Fixture().Post("/v1/completions", R"({"prompt": "a", "stream": true})")->chunks()) {
    EXPECT_FALSE(Has(chunk, "prompt_progress"));
    n_timings += Has(chunk, "timings") ? 1 : 0;
  }
  EXPECT_EQ(n_timings, 1) << "in the last one alone, unless asked";
}

TEST(TextToolsTest, TokensThereAndBack) {
  Fixture fixture;
  const report::Record tokens =
      fixture.Post("/tokenize", R"({"content": "hello", "with_pieces": true})")->json();
  EXPECT_EQ(TextAt(tokens, "tokens.0.piece"), "hello");
  const report::Record text = fixture.Post("/detokenize", R"({"tokens": [256, 257]})")->json();
  EXPECT_EQ(TextAt(text, "content"), "hell");
  const report::Record prompt =
      fixture.Post("/apply-template", R"({"messages": [{"role": "user", "content": "x"}]})")
          ->json();
  EXPECT_EQ(TextAt(prompt, "prompt"), "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(fixture.Post("/tokenize", "{}")->status(), 400);
  EXPECT_EQ(fixture.Post("/detokenize", R"({"tokens": [-5]})")->status(), 400);
  EXPECT_EQ(fixture.Post("/detokenize", R"({"tokens": "x"})")->status(), 400);
}

TEST(PagesTest, ModelsAndProps) {
  Fixture fixture;
  const report::Record models = fixture.Get("/v1/models")->json();
  EXPECT_EQ(TextAt(models, "object"), "list");
  EXPECT_EQ(TextAt(models, "data.0.id"), "fake");
  EXPECT_EQ(TextAt(models, "data.0.object"), "model");
  EXPECT_EQ(IntAt(models, "data.0.created"), 7);
  EXPECT_EQ(fixture.Get("/v1/models/fake")->status(), 200);
  for (const char* other : {"/v1/models/other", "/v1/models/org/other"}) {
    EXPECT_EQ(TextAt(fixture.Get(other)->json(), "error.code"), "model_not_found");
  }
  const report::Record props = fixture.Get("/props")->json();
  EXPECT_EQ(IntAt(props, "total_slots"), 1);
  EXPECT_EQ(IntAt(props, "default_generation_settings.n_ctx"), 100);
  EXPECT_EQ(fixture.Post("/props", "{}")->status(), 501);
}

TEST(PagesTest, MethodsAreThoseOfTheEngine) {
  const report::Record body = Fixture().Get("/v1/methods")->json();
  EXPECT_EQ(TextAt(body, "object"), "list");
  EXPECT_EQ(TextAt(body, "data.0.id"), "full");
  EXPECT_EQ(TextAt(body, "data.0.object"), "method");
  const report::Value data = At(body, "data");
  const auto& list = std::get<report::List>(data.data);
  const auto is = [&](const std::string& id, const std::string& what) {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = "data." + std::to_string(i) + ".";
      if (TextAt(body, at + "id") == id) return std::get<bool>(At(body, at + what).data);
    }
    ADD_FAILURE() << "no method " << id;
    return false;
  };
  EXPECT_FALSE(is("full", "needs_budget"));
  EXPECT_TRUE(is("streaming", "needs_budget"));
  EXPECT_TRUE(is("streaming", "holds_budget"));
  EXPECT_FALSE(is("d2o", "holds_budget"));
  EXPECT_FALSE(is("streaming", "needs_question"));
  EXPECT_TRUE(is("snapkv", "needs_question"));
  EXPECT_TRUE(is("streaming", "reassigns_positions"));
  EXPECT_FALSE(is("snapkv", "reassigns_positions"));
  EXPECT_GE(IntAt(body, "data.2.min_size"), 1);
  EXPECT_FALSE(TextAt(body, "data.2.summary").empty());
}

TEST(PagesTest, SlotsSayWhatRuns) {
  Fixture fixture({.n_slots = 2});
  fixture.backend.state_now.running.push_back(
      {.id = 5, .session = "s", .prefilling = true, .n_prompt = 10, .n_done = 4});
  const auto answer = fixture.Get("/slots");
  const auto value = report::ParseJson(answer->response().body);
  const auto& list = std::get<report::List>(value->data);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(TextAt(std::get<report::Record>(list[0].data), "session"), "s");
  EXPECT_EQ(
      fixture.Exercise({.method = "GET", .path = "/slots", .query = {{"fail_on_no_slot", "1"}}})
          ->status(),
      200);
  fixture.backend.state_now.running.emplace_back();
  EXPECT_EQ(
      fixture.Exercise({.method = "GET", .path = "/slots", .query = {{"fail_on_no_slot", "1"}}})
          ->status(),
      503);
  EXPECT_EQ(Fixture({.slots = false}).Get("/slots")->status(), 501);
}

TEST(PagesTest, MetricsForPrometheus) {
  EXPECT_EQ(Fixture().Get("/metrics")->status(), 501);
  const auto off = Fixture({.words = {.metrics = "--metrics"}}).Get("/metrics");
  EXPECT_EQ(TextAt(off->json(), "error.message"), "start the server with --metrics");
  Fixture fixture({.metrics = true});
  fixture.Post("/v1/completions", R"({"prompt": "a"})");
  fixture.backend.state_now.n_running = 3;
  fixture.backend.state_now.reserved_bytes = 1234;
  const std::string text = fixture.Get("/metrics")->response().body;
  for (const char* line :
       {"\nwinnow_requests_running 3\n", "\nwinnow_reserved_bytes 1234\n",
        "\nllamacpp:requests_processing 3\n", "\nllamacpp:n_tokens_max 9\n",
        "\nvllm:num_requests_running{model_name=\"fake\"} 3\n",
        "\nvllm:time_to_first_token_seconds_count{model_name=\"fake\"} 1\n",
        "\nvllm:time_per_output_token_seconds_bucket{model_name=\"fake\",le=\"+Inf\"} 2\n",
        "\nvllm:time_per_output_token_seconds_sum{model_name=\"fake\"} ",
        "\nwinnow_time_to_first_token_seconds_count 1\n",
        "\nwinnow_time_between_tokens_seconds_count 2\n", "\nwinnow_kept_share 0.9\n",
        "\nvllm:kv_cache_usage_perc{model_name=\"fake\"} 0\n",
        "\nwinnow_http_replies_total{status=\"200\"} 1\n", "_bucket{le=\"+Inf\"} 1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(PagesTest, HealthNeedsNeitherModelNorKey) {
  Service loading({.api_keys = {"k"}});
  auto exchange = std::make_shared<FakeExchange>();
  loading.Handle({.method = "GET", .path = "/health"}, exchange);
  EXPECT_EQ(exchange->status(), 503);
  EXPECT_EQ(TextAt(exchange->json(), "error.message"), "Loading model");
  exchange = std::make_shared<FakeExchange>();
  loading.Handle({.method = "GET", .path = "/v1/models", .headers = {{"x-api-key", "k"}}},
                 exchange);
  EXPECT_EQ(exchange->status(), 503);

  Fixture fixture({.api_keys = {"k"}});
  EXPECT_EQ(fixture.Get("/health")->response().body, R"({"status":"ok"})");
  fixture.service.SetDraining();
  EXPECT_EQ(fixture.Get("/v1/health")->status(), 503);
}

TEST(PagesTest, PageAndUnknownPaths) {
  Fixture fixture;
  EXPECT_NE(fixture.Get("/")->response().body.find("/v1"), std::string::npos);
  EXPECT_EQ(Fixture({.page = false}).Get("/")->status(), 404);
  EXPECT_EQ(Fixture({.page = false}).Get("/page/app.js")->status(), 404);
  EXPECT_EQ(fixture.Get("/nothing")->status(), 404);
  EXPECT_EQ(fixture.Get("/../etc/passwd")->status(), 404);
  for (const char* path : {"/v1/embeddings", "/embeddings", "/embedding", "/infill", "/v1/rerank",
                           "/rerank", "/v1/responses", "/v1/messages"}) {
    EXPECT_EQ(fixture.Post(path, "{}")->status(), 501) << path;
  }
  const auto wrong = fixture.Get("/v1/chat/completions");
  EXPECT_EQ(wrong->status(), 405);
  EXPECT_EQ(FindHeader(*wrong, "allow"), "POST, OPTIONS");
  EXPECT_EQ(fixture.Exercise({.method = "BREW", .path = "/v1/models"})->status(), 405);
  const auto options = fixture.Exercise({.method = "OPTIONS", .path = "/v1/models"});
  EXPECT_EQ(options->status(), 204);
  EXPECT_EQ(FindHeader(*options, "allow"), "GET, HEAD, OPTIONS");
}

TEST(PagesTest, PageIsSentAnewOnlyWhereItChanged) {
  Fixture fixture({.api_keys = {"k"}});
  const auto first = fixture.Get("/page/app.js");
  EXPECT_EQ(first->status(), 200);
  EXPECT_EQ(FindHeader(*first, "content-security-policy").find("unsafe"), std::string::npos);
  const std::string etag = FindHeader(*first, "etag");
  EXPECT_FALSE(etag.empty());
  const auto ask = [&](const std::string& known) {
    return fixture.Exercise(
        {.method = "GET", .path = "/page/app.js", .headers = {{"if-none-match", known}}});
  };
  EXPECT_EQ(ask(etag)->status(), 304);
  EXPECT_EQ(ask(etag)->response().body, "");
  EXPECT_EQ(FindHeader(*ask(etag), "etag"), etag);
  EXPECT_EQ(ask("\"older\", W/" + etag)->status(), 304);
  EXPECT_EQ(ask("\"older\"")->status(), 200);
}

TEST(KeysTest, OneOfTheKeysIsNeeded) {
  Fixture fixture({.api_keys = {"one", "two"}});
  const auto ask = [&](const std::string& name, const std::string& value) {
    return fixture.Exercise({.method = "GET", .path = "/v1/models", .headers = {{name, value}}})
        ->status();
  };
  EXPECT_EQ(fixture.Get("/v1/models")->status(), 401);
  EXPECT_EQ(ask("authorization", "Bearer one"), 200);
  EXPECT_EQ(ask("authorization", "bearer two"), 200);
  EXPECT_EQ(ask("x-api-key", "two"), 200);
  EXPECT_EQ(ask("authorization", "Bearer on"), 401);
  EXPECT_EQ(ask("authorization", "Bearer onee"), 401);
  EXPECT_EQ(ask("authorization", "one"), 401);
  EXPECT_EQ(ask("authorization", "Bearer "), 401);
  EXPECT_EQ(fixture.Get("/nothing")->status(), 401) << "paths are not told to strangers";
}

TEST(OriginTest, OffUnlessAsked) {
  Fixture closed;
  const HttpRequest request = {
      .method = "GET", .path = "/v1/models", .headers = {{"origin", "https://a.example"}}};
  EXPECT_EQ(FindHeader(*closed.Exercise(request), "access-control-allow-origin"), "");
  const HttpRequest cross = {
      .method = "POST",
      .path = "/v1/completions",
      .headers = {{"origin", "https://a.example"}, {"sec-fetch-site", "cross-site"}},
      .body = R"({"prompt": "a"})"};
  EXPECT_EQ(closed.Exercise(cross)->status(), 403);

  Fixture open({.cors_origin = "https://a.example"});
  EXPECT_EQ(FindHeader(*open.Exercise(request), "access-control-allow-origin"),
            "https://a.example");
  EXPECT_EQ(open.Exercise(cross)->status(), 200);
  HttpRequest other = request;
  other.headers[0].second = "https://b.example";
  EXPECT_EQ(FindHeader(*open.Exercise(other), "access-control-allow-origin"), "");
  const auto preflight = open.Exercise({.method = "OPTIONS",
                                        .path = "/v1/chat/completions",
                                        .headers = {{"origin", "https://a.example"}}});
  EXPECT_EQ(preflight->status(), 204);
  for (const char* header : {"authorization", "x-session"}) {
    EXPECT_NE(FindHeader(*preflight, "access-control-allow-headers").find(header),
              std::string::npos);
  }
}

}  // namespace
}  // namespace winnow::server
