#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "report/parse_json.h"
#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// Scheduling fields of requests, and the errors when the scheduler refuses them.
namespace winnow::server {
namespace {

using runtime::ErrorKind;
using runtime::RequestError;
using testing::At;
using testing::Fixture;
using testing::Has;
using testing::IntAt;
using testing::TextAt;

constexpr const char* kChat = "/v1/chat/completions";

std::string Chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hello"}], )" + more + "}";
}

TEST(SlotsTest, ACompletionIsTheSessionOfItsSlotAfterwards) {
  Fixture fixture({.n_slots = 4});
  const auto answer = fixture.Post("/completion", R"({"prompt": "he", "id_slot": 2})");
  ASSERT_EQ(answer->status(), 200);
  EXPECT_EQ(fixture.backend.requests.at(0).replaces, "slot-2");
  EXPECT_FALSE(fixture.backend.requests[0].session);
  EXPECT_EQ(IntAt(answer->json(), "id_slot"), 2);
  const auto stream =
      fixture.Post("/completion", R"({"prompt": "he", "id_slot": 2, "stream": true})")->chunks();
  EXPECT_EQ(IntAt(stream.front(), "id_slot"), 2);
  EXPECT_EQ(IntAt(stream.back(), "id_slot"), 2);
  fixture.Post(kChat, Chat(R"("id_slot": 0)"));
  EXPECT_EQ(fixture.backend.requests.back().replaces, "slot-0");

  for (const char* none : {R"({"prompt": "he", "id_slot": -1})", R"({"prompt": "he"})"}) {
    EXPECT_EQ(IntAt(fixture.Post("/completion", none)->json(), "id_slot"), -1);
    EXPECT_FALSE(fixture.backend.requests.back().replaces);
  }
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x"})");
  for (const char* wrong : {R"("prompt": "he", "id_slot": 4)", R"("prompt": "he", "id_slot": -2)",
                            R"("prompt": "he", "id_slot": 1, "session": "a")"}) {
    const auto refused = fixture.Post("/completion", std::string("{") + wrong + "}");
    EXPECT_EQ(refused->status(), 400) << wrong;
    EXPECT_EQ(TextAt(refused->json(), "error.param"), "id_slot") << wrong;
  }
  EXPECT_EQ(fixture.Post("/completion", R"({"prompt": ["a", "b"], "id_slot": 1})")->status(), 400);
  EXPECT_EQ(fixture.Post("/v1/sessions", R"({"prompt": "a", "id_slot": 1})")->status(), 400);
}

TEST(SlotsTest, TheListHasARequestAtItsSlot) {
  Fixture fixture({.n_slots = 4});
  auto& running = fixture.backend.state_now.running;
  const auto sessions = [&] {
    const auto value = report::ParseJson(fixture.Get("/slots")->response().body);
    std::string shown;
    for (const report::Value& item : std::get<report::List>(value->data)) {
      const auto& slot = std::get<report::Record>(item.data);
      EXPECT_EQ(IntAt(slot, "id"), std::ranges::count(shown, ';'));
      const bool is_free = IntAt(slot, "id_task") == -1;
      EXPECT_NE(std::get<bool>(At(slot, "is_processing").data), is_free);
      shown += (is_free ? "-" : TextAt(slot, "session")) + ";";
    }
    return shown;
  };
  EXPECT_EQ(sessions(), "-;-;-;-;");
  running = {{.id = 1, .session = "a"}, {.id = 2, .session = "slot-2"}};
  EXPECT_EQ(sessions(), "a;-;slot-2;-;");
  running = {{.id = 1}, {.id = 2, .session = "slot-0"}, {.id = 3}, {.id = 4, .session = "slot-3"}};
  EXPECT_EQ(sessions(), "slot-0;;;slot-3;");
  // Two choices of one request; names that are not of a slot of this server.
  running = {{.id = 1, .session = "slot-1"}, {.id = 1, .session = "slot-1"}};
  EXPECT_EQ(sessions(), "slot-1;slot-1;-;-;");
  running = {{.id = 1, .session = "slot-9"}, {.id = 2, .session = "slot-02"}};
  EXPECT_EQ(sessions(), "slot-9;slot-02;-;-;");
  running.assign(6, {.id = 1, .session = "slot-1"});
  EXPECT_EQ(sessions(), "slot-1;slot-1;slot-1;slot-1;slot-1;slot-1;");
}

TEST(NativeCompletionTest, TruncatedIsWhatTheContextEnded) {
  Fixture fixture;
  using runtime::Finish;
  for (const auto& [finish, truncated] :
       {std::pair(Finish::kContext, true), std::pair(Finish::kLength, false),
        std::pair(Finish::kStop, false)}) {
    fixture.backend.finish = finish;
    const report::Record body = fixture.Post("/completion", R"({"prompt": "he"})")->json();
    EXPECT_EQ(std::get<bool>(At(body, "truncated").data), truncated);
  }
}

// As in vLLM: smaller numbers run first.
TEST(PriorityTest, OnlyWhereTheServerAllowsIt) {
  Fixture fixture({.priorities = true});
  fixture.Post(kChat, Chat(R"("priority": -3)"));
  fixture.Post(kChat, Chat(R"("stream": false)"));
  ASSERT_EQ(fixture.backend.requests.size(), 2U);
  EXPECT_GT(fixture.backend.requests[0].priority, fixture.backend.requests[1].priority);
  EXPECT_EQ(fixture.Post(kChat, Chat(R"("priority": 1.5)"))->status(), 400);
  EXPECT_EQ(fixture.Post(kChat, Chat(R"("priority": 99999999999)"))->status(), 400);

  Fixture plain;
  const auto refused = plain.Post(kChat, Chat(R"("priority": -3)"));
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(TextAt(refused->json(), "error.param"), "priority");
  EXPECT_EQ(plain.Post(kChat, Chat(R"("priority": 0)"))->status(), 200);
}

TEST(ChoicesTest, AreNoMoreThanCanRun) {
  Fixture fixture({.n_slots = 3});
  EXPECT_EQ(fixture.Post(kChat, Chat(R"("n": 3)"))->status(), 200);
  const auto refused = fixture.Post(kChat, Chat(R"("n": 4)"));
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(TextAt(refused->json(), "error.param"), "n");
  EXPECT_EQ(TextAt(refused->json(), "error.message"), "n: found 4, expected 1 to 3");
  Fixture large({.n_slots = 1000});
  EXPECT_EQ(large.Post(kChat, Chat(R"("n": 128)"))->status(), 200);
  const auto beyond = large.Post(kChat, Chat(R"("n": 129)"));
  EXPECT_EQ(beyond->status(), 400);
  EXPECT_EQ(TextAt(beyond->json(), "error.message"), "n: found 129, expected 1 to 128");
}

TEST(RefusalsTest, NameTheFieldOfTheRequest) {
  Fixture fixture;
  const RequestError too_long = {ErrorKind::kInvalid, "the prompt is long", "prompt"};
  std::string words;
  for (int i = 0; i < 60; ++i) words += "hello hi ";
  const std::string chat = R"({"messages": [{"role": "user", "content": ")" + words + R"("}]})";
  const std::string text = R"({"prompt": ")" + words + R"("})";
  for (const auto& [path, body, param] :
       {std::tuple(kChat, chat, "messages"), std::tuple("/v1/completions", text, "prompt"),
        std::tuple("/completion", text, "prompt")}) {
    SCOPED_TRACE(path);
    for (const bool later : {false, true}) {  // refused in Submit, or after waiting
      fixture.backend.refusal = later ? std::nullopt : std::optional(too_long);
      fixture.backend.failure = later ? std::optional(too_long) : std::nullopt;
      const auto refused = fixture.Post(path, body);
      EXPECT_EQ(refused->status(), 400);
      EXPECT_EQ(TextAt(refused->json(), "error.param"), param);
      EXPECT_EQ(TextAt(refused->json(), "error.code"), "context_length_exceeded");
    }
  }
  fixture.backend.failure.reset();
  // Advice of the engine about settings that clients cannot change is rewritten.
  fixture.backend.refusal = RequestError{
      ErrorKind::kInvalid, "it needs 9 bytes; in chunks (`prefill_chunk`) less", "memory_bytes"};
  const auto few = fixture.Post(kChat, chat);
  EXPECT_EQ(TextAt(few->json(), "error.param"), "kv_memory");
  EXPECT_EQ(TextAt(few->json(), "error.message"),
            "it needs 9 bytes; in chunks (the server's prefill chunk) less");
  fixture.backend.refusal = RequestError{ErrorKind::kInvalid, "a share of nothing", "ratio"};
  EXPECT_EQ(TextAt(fixture.Post(kChat, chat)->json(), "error.param"), "kv_ratio");
  fixture.backend.refusal = RequestError{ErrorKind::kInvalid, "the sampler is wrong"};
  const report::Record unnamed = fixture.Post(kChat, chat)->json();
  EXPECT_TRUE(std::holds_alternative<std::monostate>(At(unnamed, "error.param").data));
}

TEST(RefusalsTest, OfSessionsNameTheFieldToo) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x"})");
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"/v1/sessions", R"({"id": "../a", "prompt": "x"})", "id"},
      {"/v1/sessions/a/fork", R"({"id": ".a"})", "id"},
      {"/v1/sessions/a/save", R"({"name": "a/b"})", "name"},
      {"/v1/sessions/b/restore", R"({"name": ""})", "name"}};
  for (const auto& [path, body, param] : cases) {
    const auto refused = fixture.Post(path, body);
    EXPECT_EQ(refused->status(), 400) << path;
    EXPECT_EQ(TextAt(refused->json(), "error.param"), param) << path;
  }
  const auto slot = fixture.Exercise({.method = "POST",
                                      .path = "/slots/0",
                                      .query = {{"action", "save"}},
                                      .body = R"({"filename": "../a"})"});
  EXPECT_EQ(slot->status(), 400);
  EXPECT_EQ(TextAt(slot->json(), "error.param"), "filename");

  fixture.backend.refusal = RequestError{ErrorKind::kInvalid, "it is long", "prompt"};
  for (const auto& [body, param] :
       {std::pair(R"({"document": "x"})", "document"), std::pair(R"({"prompt": "x"})", "prompt"),
        std::pair(R"({"messages": [{"role": "user", "content": "x"}]})", "messages")}) {
    const auto refused = fixture.Post("/v1/sessions", body);
    EXPECT_EQ(refused->status(), 400) << body;
    EXPECT_EQ(TextAt(refused->json(), "error.param"), param) << body;
  }
}

// The stream starts with the reading: an earlier refusal has its own status.
TEST(RefusalsTest, OfSessionsThatAreStreamed) {
  Fixture fixture({.metrics = true});
  const auto create = [&] {
    return fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x", "stream": true})");
  };
  const auto made = create();
  EXPECT_TRUE(made->streamed());
  EXPECT_EQ(made->events().back(), "[DONE]");
  for (const auto& [kind, status] :
       {std::pair(ErrorKind::kBusy, 409), std::pair(ErrorKind::kQueueFull, 429),
        std::pair(ErrorKind::kInvalid, 400), std::pair(ErrorKind::kTooLarge, 400)}) {
    fixture.backend.refusal = RequestError{kind, "not now"};
    const auto refused = create();
    EXPECT_EQ(refused->status(), status);
    EXPECT_FALSE(refused->streamed());
    EXPECT_EQ(TextAt(refused->json(), "error.message"), "not now");
  }
  // A later failure is an event.
  fixture.backend.refusal.reset();
  fixture.backend.sessions.clear();
  fixture.backend.session_failure = RequestError{ErrorKind::kUnavailable, "it ends"};
  const auto failed = create();
  EXPECT_EQ(failed->status(), 200);
  ASSERT_EQ(failed->chunks().size(), 2U);
  EXPECT_TRUE(Has(failed->chunks()[0], "prompt_progress"));
  EXPECT_EQ(TextAt(failed->chunks()[1], "error.message"), "it ends");
  // The stream starts while the request waits, so that the client sees it was accepted.
  fixture.backend.session_failure.reset();
  fixture.backend.holds = true;
  const auto waits = create();
  EXPECT_TRUE(waits->streamed());
  EXPECT_FALSE(waits->ended());
  EXPECT_EQ(waits->bytes(), "");
}

}  // namespace
}  // namespace winnow::server
