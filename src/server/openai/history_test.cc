// Conversations that name a session, sent whole or only from the new message on.
#include "server/openai/history.h"

#include <gtest/gtest.h>

#include <optional>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

namespace winnow::server {
namespace {

using testing::Fixture;
using testing::TextAt;

const std::string kEnd = "<|im_end|>\n<|im_start|>assistant\n";

const char* const kSystemTools =
    "{% if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}"
    "{{ tools | tojson if tools else '' }}<|im_end|>\n{% endif %}"
    "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string Said(const std::string& role, const std::string& text) {
  return R"({"role": ")" + role + R"(", "content": )" + nlohmann::json(text).dump() + "}";
}
std::string User(const std::string& text) { return Said("user", text); }
std::string Assistant(const std::string& text) { return Said("assistant", text); }
std::string Turn(const std::string& text) { return "<|im_end|>\n<|im_start|>user\n" + text + kEnd; }

class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() {
    fixture_.emplace();
    fixture_->Post("/v1/sessions", R"({"id": "s", "messages": [)" + kSystem + "]}");
  }

  // Asks, and returns the prompt that the session then has; of an error its message.
  std::string Ask(const std::vector<std::string>& messages, const std::string& fields = "") {
    std::string list;
    for (const std::string& message : messages) list += (list.empty() ? "" : ", ") + message;
    const size_t n_before = backend().requests.size();
    const auto exchange = fixture_->Post(
        "/v1/chat/completions", R"({"session": "s", "messages": [)" + list + "]" + fields + "}");
    if (exchange->status() != 200) return TextAt(exchange->json(), "error.message");
    EXPECT_EQ(backend().requests.size(), n_before + 1);
    EXPECT_TRUE(backend().requests.back().begins_with_session);
    asked_ = backend().requests.back().prompt;
    return fixture_->tokenizer->Decode(asked_, true);
  }
  // The model's answer to the last question: the session has read it, but for its last letter if it
  // was cut short.
  void Answer(const std::string& text, bool is_cut = false) {
    std::vector<tokenizer::TokenId> tokens = asked_;
    const tokenizer::MarkedText marked = {text, true};
    const auto added = fixture_->tokenizer->EncodeMarked({&marked, 1}, false);
    tokens.insert(tokens.end(), added.begin(), added.end());
    backend().unread["s"].clear();
    backend().ended.erase("s");
    if (is_cut) {
      backend().unread["s"] = {tokens.back()};
      tokens.pop_back();
    } else {
      backend().ended.insert("s");
    }
    backend().sessions["s"] = tokens;
  }
  testing::FakeBackend& backend() { return fixture_->backend; }

  const std::string kSystem = Said("system", "Be kind.");
  const std::string kBegin =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nFirst" + kEnd;
  const std::string kAnother = "messages: found answers that are not the session's last";
  std::optional<Fixture> fixture_;
  std::vector<tokenizer::TokenId> asked_;  // the last prompt
};

TEST_F(HistoryTest, QuestionsFollowTheSystemMessage) {
  EXPECT_EQ(Ask({User("First")}), kBegin);
  Answer("Yes.");
  EXPECT_EQ(Ask({User("Second")}), kBegin + "Yes." + Turn("Second"));
}

TEST_F(HistoryTest, TheWholeConversationIsTheSessionsHistory) {
  Ask({kSystem, User("First")});
  const auto question = asked_;
  const auto outline = backend().outlines["s"];
  for (const std::string answer : {" He did. ", "He did.", "<think>\nDid he?</think>\n\nHe did."}) {
    for (const auto& messages : std::vector<std::vector<std::string>>{
             {kSystem, User("First"), Assistant("He did."), User("Next")},
             {User(" First\n"), Assistant("\nHe did. "), User("Next")},
             {User("Next")}}) {
      asked_ = question;
      backend().outlines["s"] = outline;
      Answer(answer);
      EXPECT_EQ(Ask(messages), kBegin + answer + Turn("Next"));
      EXPECT_EQ(backend().outlines["s"].messages.size(), 5U);
      EXPECT_EQ(backend().outlines["s"].answer_begins, std::ssize(asked_));
    }
  }
}

TEST_F(HistoryTest, LaterTurnsAreComparedToo) {
  Ask({User("First")});
  Answer("Yes.");
  Ask({User("Second")});
  Answer("Yes.");
  const std::string all = kBegin + "Yes." + Turn("Second") + "Yes." + Turn("Third");
  const auto outline = backend().outlines["s"];
  EXPECT_EQ(
      Ask({User("First"), Assistant("Yes."), User("Second"), Assistant("Yes."), User("Third")}),
      all);
  backend().outlines["s"] = outline;
  const size_t n_before = backend().requests.size();
  for (const auto& messages : std::vector<std::vector<std::string>>{
           {User("First"), Assistant("Yes."), User("Third")},  // another branch
           {User("First"), Assistant("Yes."), User("Second"), Assistant("No."), User("Third")},
           {User("Edited"), Assistant("Yes."), User("Second"), Assistant("Yes."), User("Third")},
           {User("Second"), Assistant("Yes."), User("Third")},
           {User("First"), Assistant("Yes."), User("Second"), Assistant("Y"), User("Third")},
           {User("First"), Assistant("Yes."), User("Second"), Assistant(""), User("Third")}}) {
    EXPECT_TRUE(Ask(messages).starts_with(kAnother)) << messages.back();
  }
  EXPECT_EQ(backend().requests.size(), n_before);
}

TEST_F(HistoryTest, PartsAreOneText) {
  const std::string parts =
      R"({"role": "user", "content": [{"type": "text", "text": "First"}, {"type": "text", "text": "part"}]})";
  Ask({parts});
  Answer(" Yes. ");
  EXPECT_TRUE(Ask({parts, Assistant("Yes."), User("Next")}).ends_with(" Yes. " + Turn("Next")));
}

TEST_F(HistoryTest, AnotherSystemMessageIsRefused) {
  EXPECT_TRUE(Ask({Said("system", "Be rude."), User("First")})
                  .starts_with("messages: found a system message"));
  Ask({User("First")});
  Answer("Yes.");
  EXPECT_TRUE(Ask({Said("developer", "Be rude."), User("Next")})
                  .starts_with("messages: found a system message"));
  EXPECT_EQ(Ask({kSystem, User("Next")}), kBegin + "Yes." + Turn("Next"));
}

// Clients that stop an answer, or lose the connection, have only its beginning.
TEST_F(HistoryTest, OfAnAnswerThatWasCutShortTheBeginningIsEnough) {
  Ask({User("First")});
  const auto outline = backend().outlines["s"];
  Answer("He did it.", /*is_cut=*/true);
  for (const char* seen : {"He did it.", "He did", ""}) {
    backend().outlines["s"] = outline;
    EXPECT_EQ(Ask({User("First"), Assistant(seen), User("Next")}),
              kBegin + "He did it." + Turn("Next"));
  }
  backend().outlines["s"] = outline;
  EXPECT_TRUE(Ask({User("First"), Assistant("She"), User("Next")}).starts_with(kAnother));
}

TEST_F(HistoryTest, AnEmptyAnswerIsAnAnswer) {
  Ask({User("First")});
  Answer("");
  EXPECT_EQ(Ask({User("First"), Assistant(""), User("Next")}), kBegin + Turn("Next"));
}

TEST_F(HistoryTest, TheBeginningOfAnAnswerMayBeSent) {
  EXPECT_EQ(Ask({User("First"), Assistant("Sure,")}), kBegin + "Sure,");
  Answer(" I can.");
  EXPECT_EQ(Ask({User("First"), Assistant("Sure, I can."), User("Second"), Assistant("Well,")}),
            kBegin + "Sure, I can." + Turn("Second") + "Well,");
  Answer(" no.");
  // The session's own answer goes on.
  const auto outline = backend().outlines["s"];
  const std::string said = kBegin + "Sure, I can." + Turn("Second") + "Well, no.";
  EXPECT_EQ(Ask({User("First"), Assistant("Sure, I can."), User("Second"), Assistant("Well, no.")}),
            said);
  EXPECT_EQ(backend().outlines["s"], outline);
  EXPECT_TRUE(Ask({User("First"), Assistant("Sure, I can."), User("Second"), Assistant("Well,")})
                  .starts_with(kAnother))
      << "its end would be missing in the answer";
}

// Calls are written as the model writes them, not as the template does.
TEST_F(HistoryTest, CallsAndTheirResultsAreMessages) {
  fixture_.emplace(ServiceOptions(), kSystemTools);
  const std::string list =
      R"("tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}])";
  const std::string tools = ", " + list;
  fixture_->Post("/v1/sessions", R"({"id": "s", "messages": [)" + kSystem + "], " + list + "}");
  const std::string begin =
      fixture_->tokenizer->Decode(backend().sessions["s"], true) + "<|im_start|>user\nFirst" + kEnd;
  const auto call = [](const std::string& name, const std::string& arguments) {
    return R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": )" +
           name + R"(, "arguments": )" + nlohmann::json(arguments).dump() + "}}]}";
  };
  const std::string result = Said("tool", "A house.");
  EXPECT_EQ(Ask({User("First")}, tools), begin);
  ASSERT_TRUE(backend().outlines["s"].answer_has_tools);
  const std::string written =
      "<tool_call>\n{\"name\": \"look\",  \"arguments\": {\"at\": \"\xc3\xa9\"}}\n</tool_call>";
  const auto question = asked_;
  Answer(written);
  const auto outline = backend().outlines["s"];
  for (const char* arguments : {R"({"at": "\u00e9"})", "{\"at\":\"\xc3\xa9\"}"}) {
    backend().outlines["s"] = outline;
    const std::string prompt = Ask({User("First"), call("\"look\"", arguments), result}, tools);
    EXPECT_TRUE(prompt.starts_with(begin + written + "<|im_end|>\n")) << prompt;
    EXPECT_NE(prompt.find("A house."), std::string::npos);
  }
  // The session has gone on: the same request again is no new turn.
  Answer("A house.");
  EXPECT_TRUE(Ask({User("First"), call("\"look\"", R"({"at": "\u00e9"})"), result}, tools)
                  .starts_with(kAnother));
  backend().outlines["s"] = outline;
  asked_ = question;
  Answer(written);
  EXPECT_TRUE(Ask({User("First"), call("\"look\"", R"({"at": "e"})"), result}, tools)
                  .starts_with(kAnother));
  // The session's text has these tools.
  EXPECT_TRUE(
      Ask({User("More")}, R"(, "tools": [{"type": "function", "function": {"name": "go"}}])")
          .starts_with("messages: found tools that the session did not begin with"));
  for (const char* name : {"null", "5", "\"\""}) {
    EXPECT_TRUE(
        Ask({User("First"), call(name, "{}"), result, User("Next")}, tools).starts_with("messages"))
        << name;
  }
}

// Models that open the reasoning in the prompt.
TEST_F(HistoryTest, AnAnswerMayBeginInReasoning) {
  fixture_.emplace(ServiceOptions(), std::string(kSystemTools) +
                                         "{% if add_generation_prompt %}<think>\n{% endif %}");
  fixture_->Post("/v1/sessions", R"({"id": "s", "messages": [)" + kSystem + "]}");
  const std::string prompt = Ask({User("First")});
  ASSERT_TRUE(prompt.ends_with("<think>\n"));
  EXPECT_TRUE(backend().outlines["s"].answer_in_reasoning);
  Answer("Did he?</think>\n\nHe did.");
  const auto outline = backend().outlines["s"];
  EXPECT_EQ(Ask({User("First"), Assistant("He did.")}), prompt + "Did he?</think>\n\nHe did.");
  EXPECT_EQ(backend().outlines["s"], outline) << "its own answer goes on";
  EXPECT_TRUE(Ask({User("First"), Assistant("He did."), User("Next")})
                  .starts_with(prompt + "Did he?</think>\n\nHe did.<|im_end|>\n"));
}

// Templates that open no system turn, and end answers only.
TEST_F(HistoryTest, ASessionOfMessagesHasNoAnswerToEnd) {
  fixture_.emplace(ServiceOptions(),
                   "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}"
                   "{% elif m.role == 'assistant' %}<model>{{ m.content }}<end>"
                   "{% else %}{{ m.content }}{% endif %}{% endfor %}"
                   "{% if add_generation_prompt %}<model>{% endif %}");
  fixture_->Post("/v1/sessions", R"({"id": "s", "messages": [)" + kSystem + "]}");
  EXPECT_EQ(Ask({User("First")}), "Be kind.<user>First<model>");
  Answer("Yes.");
  EXPECT_EQ(Ask({User("Next")}), "Be kind.<user>First<model>Yes.<end><user>Next<model>");
}

// The rendered text may differ meanwhile, as where a template writes the date.
TEST_F(HistoryTest, MessagesOfASessionWithoutAnAnswerAreItsHistory) {
  backend().sessions.erase("s");
  fixture_->Post("/v1/sessions",
                 R"({"id": "s", "messages": [)" + kSystem + ", " + User("A long text. ") + "]}");
  const std::string begin =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nA long text. <|im_end|>\n";
  EXPECT_EQ(Ask({User("A long text."), User("First")}), begin + "<|im_start|>user\nFirst" + kEnd);
}

// As clients do that pass on the text of an answer as it is, or write calls anew.
TEST_F(HistoryTest, WhatClientsRewriteIsTheSame) {
  fixture_.emplace(ServiceOptions(), kSystemTools);
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}])";
  fixture_->Post("/v1/sessions", R"({"id": "s", "messages": [)" + kSystem + "], " + tools + "}");
  Ask({User("First")}, ", " + tools);
  const std::string written =
      R"(<think>So.</think>I look.<tool_call>{"name": "look", "arguments": {"b": 1.0, "a": [1e2]}}</tool_call>)";
  Answer(written);
  const auto outline = backend().outlines["s"];
  const auto call = [](const std::string& content) {
    return R"({"role": "assistant", "content": )" + content +
           R"(, "tool_calls": [{"id": "1", "type": "function", "function":
              {"name": "look", "arguments": "{\"a\":[100],\"b\":1}"}}]})";
  };
  for (const char* content : {R"("I look.")", R"("<think>So.</think>I look.")", "null"}) {
    backend().outlines["s"] = outline;
    EXPECT_NE(
        Ask({User("First"), call(content), Said("tool", "A house.")}, ", " + tools).find(written),
        std::string::npos)
        << content;
  }
}

TEST_F(HistoryTest, SomethingMustBeNew) {
  Ask({User("First")});
  Answer("Yes.");
  for (const auto& [messages, fields] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{kSystem}, ""},
           {{User("First"), Assistant("Yes.")}, R"(, "add_generation_prompt": false)"}}) {
    EXPECT_TRUE(Ask(messages, fields).starts_with("messages: found no message that follows"));
  }
}

TEST_F(HistoryTest, LaterSystemMessagesAreTurns) {
  Ask({User("First")});
  Answer("Yes.");
  EXPECT_EQ(Ask({Said("user", "Second"), Said("system", "Be brief.")}),
            kBegin +
                "Yes.<|im_end|>\n<|im_start|>user\nSecond<|im_end|>\n"
                "<|im_start|>system\nBe brief." +
                kEnd);
}

TEST_F(HistoryTest, TextsMakeTheMessagesUnknown) {
  Ask({User("First")});
  Answer("Yes.");
  fixture_->Post("/v1/completions", R"({"session": "s", "prompt": " More"})");
  EXPECT_TRUE(backend().outlines["s"].messages.empty());
  EXPECT_TRUE(Ask({User("First"), Assistant("Yes."), User("Next")}).starts_with(kAnother));
  EXPECT_TRUE(Ask({kSystem, User("Next")}).starts_with("messages: found a system message"));
  EXPECT_EQ(Ask({User("Next")}), kBegin + "Yes." + Turn("Next"));
}

TEST_F(HistoryTest, ADocumentsQuestionsAreItsHistory) {
  backend().sessions.erase("s");
  fixture_->Post("/v1/sessions", R"({"id": "s", "document": "Text", "system": "Be kind."})");
  const std::string begin =
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nText\n\nFirst" + kEnd;
  const auto outline = backend().outlines["s"];
  EXPECT_TRUE(Ask({Said("system", "Be rude."), User("First")})
                  .starts_with("messages: found a system message"));
  EXPECT_EQ(Ask({User("First"), Assistant("Yes."), User("Second")}),
            begin + "Yes." + Turn("Second"))
      << "the document is asked anew";
  backend().outlines["s"] = outline;
  EXPECT_EQ(Ask({User("First")}), begin);
  Answer(" Yes. ");
  const auto asked = backend().outlines["s"];
  EXPECT_GT(asked.n_document, 0);
  EXPECT_EQ(Ask({User("First"), Assistant("Yes."), User("Second")}),
            begin + " Yes. " + Turn("Second"));
  backend().outlines["s"] = asked;
  EXPECT_EQ(Ask({User("Second")}), begin + " Yes. " + Turn("Second"));
  backend().outlines["s"] = asked;
  EXPECT_TRUE(Ask({User("Edited"), Assistant("Yes."), User("Second")}).starts_with(kAnother));
}

}  // namespace
}  // namespace winnow::server
