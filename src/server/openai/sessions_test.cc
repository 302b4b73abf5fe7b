#include <gtest/gtest.h>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

namespace winnow::server {
namespace {

using testing::At;
using testing::FakeExchange;
using testing::Fixture;
using testing::Has;
using testing::IntAt;
using testing::TextAt;

std::string Prompt(const Fixture& fixture, size_t request) {
  return fixture.tokenizer->Decode(fixture.backend.requests.at(request).prompt, true);
}

TEST(SessionsTest, DocumentIsReadOnceAndAskedOften) {
  Fixture fixture;
  const auto made = fixture.Post(
      "/v1/sessions", R"({"id": "doc", "document": " The text. ", "system": "Be brief."})");
  ASSERT_EQ(made->status(), 200);
  EXPECT_EQ(TextAt(made->json(), "id"), "doc");
  EXPECT_EQ(Prompt(fixture, 0),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nThe text.");

  // A question continues the document's turn.
  const auto ask = [&](const char* messages) {
    return fixture.Post("/v1/chat/completions",
                        std::string(R"({"session": "doc", "messages": )") + messages + "}");
  };
  ASSERT_EQ(ask(R"([{"role": "user", "content": "Who?"}])")->status(), 200);
  EXPECT_EQ(fixture.backend.requests[1].session, "doc");
  const std::string first = Prompt(fixture, 1);
  EXPECT_EQ(first,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nThe text.\n\nWho?"
            "<|im_end|>\n<|im_start|>assistant\n");

  // The session has read the question and the answer: the whole conversation continues it.
  fixture.backend.sessions["doc"] = fixture.backend.requests[1].prompt;
  for (const auto token : fixture.tokenizer->Encode("He.", {.add_special = false})) {
    fixture.backend.sessions["doc"].push_back(token);
  }
  ASSERT_EQ(ask(R"([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "He."},
                    {"role": "user", "content": "Why?"}])")
                ->status(),
            200);
  EXPECT_EQ(Prompt(fixture, 2), first +
                                    "He.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
                                    "<|im_start|>assistant\n");

  // Another question alone is a new turn after the answer.
  ASSERT_EQ(ask(R"([{"role": "user", "content": "When?"}])")->status(), 200);
  EXPECT_EQ(Prompt(fixture, 3), first +
                                    "He.<|im_end|>\n<|im_start|>user\nWhen?<|im_end|>\n"
                                    "<|im_start|>assistant\n");
}

TEST(SessionsTest, AnswersInOtherTokensAreTheSameText) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "doc", "document": "Text"})");
  const auto ask = [&](const char* messages) {
    fixture.Post("/v1/chat/completions",
                 std::string(R"({"session": "doc", "messages": )") + messages + "}");
    return fixture.backend.requests.back().prompt;
  };
  auto read = ask(R"([{"role": "user", "content": "Q"}])");
  // The model wrote "hello" letter by letter.
  for (const char* letter = "hello"; *letter != 0; ++letter) {
    read.push_back(fixture.tokenizer->Encode(std::string(1, *letter), {.add_special = false})[0]);
  }
  fixture.backend.sessions["doc"] = read;
  const auto prompt = ask(R"([{"role": "user", "content": "Q"},
      {"role": "assistant", "content": "hello"}, {"role": "user", "content": "R"}])");
  ASSERT_GT(prompt.size(), read.size());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), prompt.begin()));
  EXPECT_EQ(fixture.tokenizer->Decode(prompt, true),
            "<|im_start|>user\nText\n\nQ<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n"
            "<|im_start|>user\nR<|im_end|>\n<|im_start|>assistant\n");
}

// Writing and tokenizing a long question takes as long as parsing it.
TEST(SessionsTest, QuestionsAreLongWork) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "doc", "document": "Text"})");
  const char* chat = R"({"session": "doc", "messages": [{"role": "user", "content": "Q"}]})";
  EXPECT_EQ(fixture.Post("/v1/chat/completions", chat)->n_posted_work(), 1);
  const auto text = fixture.Post("/completion", R"({"session": "doc", "prompt": "more"})");
  EXPECT_EQ(text->n_posted_work(), 1);
  EXPECT_EQ(fixture.Post("/completion", R"({"prompt": "more"})")->n_posted_work(), 0);
}

TEST(SessionsTest, ForksKnowTheirDocument) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "doc", "document": "Text"})");
  const auto fork = fixture.Post("/v1/sessions/doc/fork", R"({"id": "two"})");
  EXPECT_EQ(TextAt(fork->json(), "id"), "two");
  EXPECT_EQ(fixture.Post("/v1/sessions/doc/fork", "")->status(), 200);
  fixture.Post("/v1/chat/completions",
               R"({"session": "two", "messages": [{"role": "user", "content": "Q"}]})");
  EXPECT_EQ(Prompt(fixture, 1), "<|im_start|>user\nText\n\nQ<|im_end|>\n<|im_start|>assistant\n");
}

// n_document may be larger than what the session has read.
TEST(SessionsTest, ADocumentIsNoLongerThanItsSession) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "doc", "document": "Text"})");
  fixture.backend.outlines["doc"].n_document += 100000;
  const auto answer =
      fixture.Post("/v1/chat/completions",
                   R"({"session": "doc", "messages": [{"role": "user", "content": "Q"}]})");
  EXPECT_EQ(answer->status(), 200);
  EXPECT_EQ(Prompt(fixture, 1), "<|im_start|>user\nText\n\nQ<|im_end|>\n<|im_start|>assistant\n");
}

TEST(SessionsTest, RestoredDocumentsAreKnownByTheirOpenTurn) {
  Fixture fixture;
  const auto prompt_after = [&](const char* read) {
    const tokenizer::MarkedText text = {read, true};
    fixture.backend.sessions["r"] = fixture.tokenizer->EncodeMarked({&text, 1});
    fixture.Post("/v1/chat/completions",
                 R"({"session": "r", "messages": [{"role": "user", "content": "Q"}]})");
    return Prompt(fixture, fixture.backend.requests.size() - 1);
  };
  const std::string end = "<|im_end|>\n<|im_start|>assistant\n";
  const std::string turn = "<|im_start|>user\nQ" + end;
  EXPECT_EQ(prompt_after("<|im_start|>user\nText"), "<|im_start|>user\nText\n\nQ" + end);
  EXPECT_EQ(prompt_after("<|im_start|>user\nText<|im_end|>\n<|im_start|>assistant\nA"),
            "<|im_start|>user\nText" + end + "A<|im_end|>\n" + turn);
}

TEST(SessionsTest, NamesThatAreDrawnAreNotMetTwice) {
  Fixture fixture;
  const auto id = [](const auto& made) { return TextAt(made->json(), "id"); };
  const std::string first = id(fixture.Post("/v1/sessions", R"({"document": "Text"})"));
  EXPECT_EQ(first.size(), 26U) << first;
  EXPECT_NE(id(fixture.Post("/v1/sessions", R"({"document": "Text"})")), first);
  EXPECT_NE(id(fixture.Post("/v1/sessions/" + first + "/fork", "{}")), first);
}

TEST(SessionsTest, TextsFollowWhatWasRead) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "t", "prompt": "hello"})");
  fixture.Post("/v1/completions", R"({"session": "t", "prompt": " hello"})");
  EXPECT_EQ(Prompt(fixture, 1), "hello hello");
  fixture.Post("/completion", R"({"session": "t", "prompt": "hello you"})");
  EXPECT_EQ(Prompt(fixture, 2), "hello you") << "it begins with what was read";
}

// The last token of an answer that max_tokens cut short was sent to the client but is not in the
// cache.
TEST(SessionsTest, TextsFollowWhatWasShown) {
  Fixture fixture;
  const auto tokens = [&](const char* text) {
    return fixture.tokenizer->Encode(text, {.add_special = false});
  };
  fixture.Post("/v1/sessions", R"({"id": "t", "prompt": "hello"})");
  fixture.backend.unread["t"] = tokens("!");
  fixture.Post("/v1/completions", R"({"session": "t", "prompt": " hello"})");
  EXPECT_EQ(Prompt(fixture, 1), "hello! hello");
  fixture.backend.sessions["t"] = tokens("hello");
  fixture.Post("/completion", R"({"session": "t", "prompt": "hello you"})");
  EXPECT_EQ(Prompt(fixture, 2), "hello you") << "it says itself what follows";

  const char* const question =
      R"({"session": "c", "messages": [{"role": "user", "content": "Q"}]})";
  fixture.backend.sessions["c"] = tokens("hello");
  fixture.backend.unread["c"] = tokens("!");
  fixture.Post("/v1/chat/completions", question);
  EXPECT_TRUE(Prompt(fixture, 3).starts_with("hello!<|im_end|>")) << Prompt(fixture, 3);
}

TEST(SessionsTest, ListGetDelete) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x"})");
  EXPECT_EQ(TextAt(fixture.Get("/v1/sessions")->json(), "data.0.id"), "a");
  EXPECT_EQ(IntAt(fixture.Get("/v1/sessions/a")->json(), "n_tokens"), 1);
  EXPECT_EQ(fixture.Get("/v1/sessions/b")->status(), 404);
  EXPECT_EQ(fixture.Exercise({.method = "DELETE", .path = "/v1/sessions/a"})->status(), 200);
  EXPECT_EQ(fixture.Exercise({.method = "DELETE", .path = "/v1/sessions/a"})->status(), 404);
}

TEST(SessionsTest, SaveAndRestoreAlsoAsSlots) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "slot-0", "prompt": "x"})");
  EXPECT_EQ(TextAt(fixture.Post("/v1/sessions/slot-0/save", R"({"name": "f"})")->json(), "name"),
            "f");
  EXPECT_EQ(fixture.Post("/v1/sessions/new/restore", R"({"name": "saved"})")->status(), 200);
  EXPECT_EQ(fixture.Post("/v1/sessions/new/restore", R"({"name": "none"})")->status(), 400);
  const auto slot = [&](const char* id, const char* action, const char* body) {
    return fixture.Exercise({.method = "POST",
                             .path = std::string("/slots/") + id,
                             .query = {{"action", action}},
                             .body = body});
  };
  EXPECT_EQ(IntAt(slot("0", "save", R"({"filename": "f"})")->json(), "n_saved"), 1);
  EXPECT_EQ(IntAt(slot("1", "restore", R"({"filename": "saved"})")->json(), "n_restored"), 3);
  EXPECT_EQ(IntAt(slot("1", "erase", "")->json(), "n_erased"), 3);
  EXPECT_EQ(slot("1", "erase", "")->status(), 404);
  EXPECT_EQ(slot("x", "erase", "")->status(), 400);
  EXPECT_EQ(slot("0", "explode", "")->status(), 400);
  EXPECT_EQ(slot("0", "save", "{}")->status(), 400);
}

TEST(SessionsTest, WhatCannotBe) {
  Fixture fixture;
  for (const char* body :
       {"{}", R"({"document": "x", "prompt": "y"})", R"({"document": 3})", R"({"document": "  "})",
        R"({"prompt": ["a", "b"]})", R"({"id": 3, "prompt": "a"})",
        R"({"messages": [{"role": "user", "content": 3}]})",
        R"({"prompt": "a", "kv_method": "h2o"})"}) {
    EXPECT_EQ(fixture.Post("/v1/sessions", body)->status(), 400) << body;
  }
  EXPECT_EQ(fixture
                .Post("/v1/chat/completions",
                      R"({"session": "none", "messages": [{"role": "user", "content": "x"}]})")
                ->status(),
            404);
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x"})");
  EXPECT_EQ(fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x"})")->status(), 409);
  EXPECT_EQ(fixture
                .Post("/v1/completions",
                      R"({"session": "a", "prompt": "x", "kv_method": "streaming", "kv_size": 64})")
                ->status(),
            400);
}

TEST(SessionsTest, WhatAFileDoesNotTellIsNull) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "hello"})");
  const auto is_null = [&](const char* path) {
    return std::holds_alternative<std::monostate>(
        At(fixture.Get("/v1/sessions/a")->json(), path).data);
  };
  EXPECT_FALSE(is_null("kv.bytes"));
  EXPECT_TRUE(is_null("file_bytes"));
  fixture.backend.files["a"] = 77;
  EXPECT_TRUE(is_null("kv.kept"));
  EXPECT_TRUE(is_null("kv.bytes"));
  EXPECT_TRUE(is_null("kv.bytes_full")) << "it may be another model's";
  EXPECT_EQ(IntAt(fixture.Get("/v1/sessions/a")->json(), "file_bytes"), 77);
}

TEST(SessionsTest, KeptTokens) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "hello hello"})");
  const report::Record kept =
      fixture
          .Exercise({.method = "GET", .path = "/v1/sessions/a/kept", .query = {{"by_head", "1"}}})
          ->json();
  EXPECT_EQ(TextAt(kept, "texts.0"), "hello");
  EXPECT_TRUE(Has(kept, "share.1"));
  EXPECT_EQ(IntAt(kept, "n_kv_heads"), 1);
  EXPECT_EQ(IntAt(kept, "by_head.0.1"), 1);
  EXPECT_FALSE(Has(fixture.Get("/v1/sessions/a/kept")->json(), "by_head"));
  EXPECT_EQ(fixture.Get("/v1/sessions/b/kept")->status(), 404);
  // Few at a time: the turn lasts from before the engine makes it until it is sent.
  const auto exchange = std::make_shared<FakeExchange>();
  fixture.service.Handle({.method = "GET", .path = "/v1/sessions/a/kept"}, exchange);
  EXPECT_TRUE(exchange->has_memory_slot());
  EXPECT_EQ(exchange->status(), 0);
  exchange->Run();
  EXPECT_EQ(exchange->status(), 200);
  EXPECT_FALSE(exchange->has_memory_slot());
  EXPECT_EQ(exchange->n_posted_work(), 1);
}

// Texts have whole characters: one of several tokens belongs to the last of them.
TEST(SessionsTest, CharactersOfSeveralTokensAreWhole) {
  Fixture fixture;
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x\u00e9y"})");
  ASSERT_EQ(fixture.backend.sessions["a"].size(), 4U) << "a letter of two bytes is two tokens";
  const report::Record kept = fixture.Get("/v1/sessions/a/kept")->json();
  const auto events = fixture.Get("/v1/sessions/a/events");
  EXPECT_EQ(events->n_memory_slots(), 1);
  EXPECT_FALSE(events->has_memory_slot()) << "while nothing is sent";
  for (const report::Record& body : {kept, events->chunks().at(0)}) {
    EXPECT_EQ(TextAt(body, "texts.0"), "x");
    EXPECT_EQ(TextAt(body, "texts.1"), "");
    EXPECT_EQ(TextAt(body, "texts.2"), "\xc3\xa9");
    EXPECT_EQ(TextAt(body, "texts.3"), "y");
  }
  events->Disconnect();  // otherwise it would watch forever
}

TEST(SessionsTest, WhoGoesAwayEndsTheReading) {
  Fixture fixture;
  fixture.backend.holds = true;
  const auto reading =
      fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "x", "stream": true})");
  ASSERT_TRUE(fixture.backend.requests.at(0).cancelled);
  EXPECT_FALSE(fixture.backend.requests[0].cancelled());
  reading->Disconnect();
  EXPECT_TRUE(fixture.backend.requests[0].cancelled());
}

TEST(SessionsTest, EventsTellWhatChanged) {
  Fixture fixture;
  EXPECT_EQ(fixture.Get("/v1/sessions/a/events")->status(), 404);
  fixture.Post("/v1/sessions", R"({"id": "a", "prompt": "hello"})");
  const auto events = fixture.Get("/v1/sessions/a/events");
  ASSERT_EQ(events->chunks().size(), 1U);
  EXPECT_EQ(TextAt(events->chunks()[0], "texts.0"), "hello");
  EXPECT_EQ(events->last_delay(), std::chrono::milliseconds(100)) << "ten times per second";
  events->Tick();
  EXPECT_EQ(events->chunks().size(), 1U) << "nothing changed";
  fixture.backend.sessions["a"].push_back(260);
  events->Tick();
  ASSERT_EQ(events->chunks().size(), 2U);
  EXPECT_EQ(IntAt(events->chunks()[1], "texts_from"), 1);
  EXPECT_EQ(IntAt(events->chunks()[1], "changes.0.at"), 1);
  fixture.backend.reads_sessions = true;
  fixture.backend.sessions["a"].push_back(260);
  events->Tick();
  EXPECT_FALSE(events->ended());
  EXPECT_EQ(events->chunks().size(), 2U) << "its prompt is being read";
  fixture.backend.reads_sessions = false;
  events->Tick();
  EXPECT_EQ(events->chunks().size(), 3U) << "also where it is as it was before";
  fixture.backend.sessions.clear();
  events->Tick();
  EXPECT_TRUE(events->ended());
}

}  // namespace
}  // namespace winnow::server
