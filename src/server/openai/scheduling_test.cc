#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// What requests ask of the scheduler beside their prompts, and what they are told when it refuses.
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

TEST(ChoicesTest, AreNoMoreThanCanBeAtWork) {
  Fixture fixture({.n_slots = 3});
  EXPECT_EQ(fixture.Post(kChat, Chat(R"("n": 3)"))->status(), 200);
  const auto refused = fixture.Post(kChat, Chat(R"("n": 4)"));
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(TextAt(refused->json(), "error.param"), "n");
  EXPECT_EQ(TextAt(refused->json(), "error.message"), "n: found 4, expected 1 to 3");
  EXPECT_EQ(Fixture({.n_slots = 1000}).Post(kChat, Chat(R"("n": 129)"))->status(), 400);
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
    for (const bool later : {false, true}) {  // refused at once, or when its turn came
      fixture.backend.refusal = later ? std::nullopt : std::optional(too_long);
      fixture.backend.failure = later ? std::optional(too_long) : std::nullopt;
      const auto refused = fixture.Post(path, body);
      EXPECT_EQ(refused->status(), 400);
      EXPECT_EQ(TextAt(refused->json(), "error.param"), param);
      EXPECT_EQ(TextAt(refused->json(), "error.code"), "context_length_exceeded");
    }
  }
  fixture.backend.failure.reset();
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

// A stream begins with what is read: what is refused before has its own status.
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
  // What fails later is an event.
  fixture.backend.refusal.reset();
  fixture.backend.sessions.clear();
  fixture.backend.session_failure = RequestError{ErrorKind::kUnavailable, "it ends"};
  const auto failed = create();
  EXPECT_EQ(failed->status(), 200);
  ASSERT_EQ(failed->chunks().size(), 2U);
  EXPECT_TRUE(Has(failed->chunks()[0], "prompt_progress"));
  EXPECT_EQ(TextAt(failed->chunks()[1], "error.message"), "it ends");
  // While it waits for its turn, the client sees that it was taken.
  fixture.backend.session_failure.reset();
  fixture.backend.holds = true;
  const auto waits = create();
  EXPECT_TRUE(waits->streamed());
  EXPECT_FALSE(waits->ended());
  EXPECT_EQ(waits->bytes(), "");
}

}  // namespace
}  // namespace winnow::server
