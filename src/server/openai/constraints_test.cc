#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "server/openai/testing/fakes.h"
#include "server/openai/testing/json_paths.h"

// Restrictions of answers, with a factory that records its calls.
namespace winnow::server {
namespace {

using testing::Fixture;
using testing::TextAt;
using Kind = ConstraintSpec::Kind;

class Recorder final : public ConstraintFactory {
 public:
  Result<std::unique_ptr<runtime::TokenConstraint>> Make(
      const ConstraintSpec& spec, const std::function<bool()>& cancelled) const override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ++n_begun;
    while (holds && !cancelled() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::lock_guard lock(mutex);
    specs.push_back(spec);
    if (spec.text == "wrong") return Error{"line 1 is wrong"};
    if (!spec.tools.empty() && spec.tools[0].name == "wrong") return Error{"it is wrong"};
    return std::unique_ptr<runtime::TokenConstraint>(std::make_unique<testing::FreeConstraint>());
  }
  mutable std::mutex mutex;
  mutable std::vector<ConstraintSpec> specs;
  std::atomic<bool> holds{false};
  mutable std::atomic<int> n_begun{0};
};

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "get",
         "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}},
        {"type": "function", "function": {"name": "stop"}}])";
constexpr const char* kToolTemplate =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: "
    "{{ m.content }}\n{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}";

std::string Chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hello"}], )" + more + "}";
}

// With a tool whose constraint cannot be made.
std::string WrongTool(const std::string& choice) {
  return R"("tools": [{"type": "function", "function": {"name": "wrong"}}], "tool_choice": )" +
         choice;
}

class ConstraintsTest : public ::testing::Test {
 protected:
  // Waits for the constraint and returns the response.
  std::shared_ptr<testing::FakeExchange> Ask(const std::string& path, const std::string& body) {
    auto answer = fixture.Post(path, body);
    if (!answer->ended()) answer->Wait();
    return answer;
  }
  ConstraintSpec Asked(const std::string& path, const std::string& body) {
    const auto answer = Ask(path, body);
    EXPECT_EQ(answer->status(), 200) << answer->response().body;
    EXPECT_FALSE(recorder->specs.empty());
    if (recorder->specs.empty()) return {};
    EXPECT_NE(fixture.backend.requests.back().constraint, nullptr);
    return recorder->specs.back();
  }

  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
  Fixture fixture{{.n_slots = 2, .constraints = recorder}, kToolTemplate};
};

TEST_F(ConstraintsTest, SchemasAndGrammars) {
  const std::string chat = "/v1/chat/completions";
  ConstraintSpec spec = Asked(chat, Chat(R"("response_format": {"type": "json_object"})"));
  EXPECT_EQ(spec.kind, Kind::kJsonSchema);
  EXPECT_EQ(spec.text, "{}");
  spec = Asked("/completion", R"({"prompt": "he", "json_schema": {"type": "null"}, "n": 2})");
  EXPECT_EQ(spec.text, R"({"type":"null"})");
  EXPECT_EQ(spec.field, "json_schema");
  for (const char* path : {"/completion", "/v1/completions"}) {
    spec = Asked(path, R"({"prompt": ["he", "llo"], "grammar": "root ::= \"a\""})");
    EXPECT_EQ(spec.kind, Kind::kGrammar);
    EXPECT_EQ(spec.text, "root ::= \"a\"");
  }
  EXPECT_EQ(Asked(chat, Chat(R"("grammar": "root ::= \"b\"")")).text, "root ::= \"b\"");
  const size_t n_made = recorder->specs.size();
  EXPECT_EQ(Ask("/completion", R"({"prompt": "he", "grammar": ""})")->status(), 200);
  EXPECT_EQ(recorder->specs.size(), n_made) << "an empty grammar is none";
}

TEST_F(ConstraintsTest, CallsOfTools) {
  const std::string chat = "/v1/chat/completions";
  const std::string tools = kTools;
  ConstraintSpec spec = Asked(chat, Chat(tools + R"(, "tool_choice": "required")"));
  EXPECT_EQ(spec.kind, Kind::kCalls);
  EXPECT_EQ(spec.format, chat::ToolFormat::kHermes);
  ASSERT_EQ(spec.tools.size(), 2U);
  EXPECT_EQ(spec.tools[0].name, "get");
  EXPECT_EQ(spec.tools[0].parameters, R"({"type":"object","properties":{"a":{"type":"integer"}}})");
  EXPECT_EQ(spec.tools[1].parameters, "{}");
  EXPECT_FALSE(spec.several_calls);
  spec = Asked(chat, Chat(tools + R"(, "tool_choice": "required", "parallel_tool_calls": true)"));
  EXPECT_TRUE(spec.several_calls);
  spec = Asked(chat, Chat(tools + R"(, "tool_choice": {"type": "function",
                                         "function": {"name": "stop"}})"));
  ASSERT_EQ(spec.tools.size(), 1U);
  EXPECT_EQ(spec.tools[0].name, "stop");
}

TEST_F(ConstraintsTest, CallsCannotBeDemandedOfATemplateWithoutTools) {
  Fixture bare({.constraints = recorder});
  const std::string tools = kTools;
  for (const char* choice :
       {R"("required")", R"({"type": "function", "function": {"name": "stop"}})"}) {
    const auto answer =
        bare.Post("/v1/chat/completions", Chat(tools + R"(, "tool_choice": )" + choice));
    EXPECT_EQ(answer->status(), 400);
    EXPECT_NE(answer->response().body.find("chat template does not support tools"),
              std::string::npos);
  }
  EXPECT_EQ(bare.Post("/v1/chat/completions", Chat(tools))->status(), 200);
  EXPECT_TRUE(recorder->specs.empty()) << "nothing is left to restrict";
}

TEST_F(ConstraintsTest, CallsThatTheModelChooses) {
  const std::string chat = "/v1/chat/completions";
  const std::string tools = kTools;
  for (const char* choice : {"", R"(, "tool_choice": "auto")"}) {
    const ConstraintSpec spec = Asked(chat, Chat(tools + choice));
    EXPECT_EQ(spec.kind, Kind::kAutoCalls);
    EXPECT_EQ(spec.format, chat::ToolFormat::kHermes);
    EXPECT_EQ(spec.tools.size(), 2U);
    EXPECT_TRUE(spec.several_calls);
    EXPECT_FALSE(spec.starts_in_reasoning);
  }
  EXPECT_FALSE(Asked(chat, Chat(tools + R"(, "parallel_tool_calls": false)")).several_calls);
  EXPECT_EQ(Asked(chat, Chat(tools + R"(, "grammar": "root ::= \"a\"")")).kind, Kind::kGrammar);
  const size_t n_made = recorder->specs.size();
  for (const std::string& more : {tools + R"(, "tool_choice": "none")",
                                  std::string(R"("tools": [], "tool_choice": "auto")")}) {
    EXPECT_EQ(Ask(chat, Chat(more))->status(), 200);
    EXPECT_EQ(fixture.backend.requests.back().constraint, nullptr);
  }
  EXPECT_EQ(recorder->specs.size(), n_made);
}

TEST_F(ConstraintsTest, CallsThatFollowThoughts) {
  Fixture thinking({.constraints = recorder},
                   std::string(kToolTemplate) + "assistant: {{ '<think>' }}");
  const auto answer = thinking.Post("/v1/chat/completions", Chat(kTools));
  if (!answer->ended()) answer->Wait();
  EXPECT_EQ(answer->status(), 200) << answer->response().body;
  ASSERT_EQ(recorder->specs.size(), 1U);
  EXPECT_TRUE(recorder->specs[0].starts_in_reasoning);
}

TEST_F(ConstraintsTest, ErrorsNameTheField) {
  const std::string tools = kTools;
  const std::pair<std::string, const char*> wrong[] = {
      {tools + R"(, "tool_choice": {"type": "function", "function": {"name": "rm"}})",
       "tool_choice"},
      {tools + R"(, "tool_choice": "must")", "tool_choice"},
      {tools + R"(, "tool_choice": {"type": "function"})", "tool_choice"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("grammar": 7)", "grammar"},
      {R"("grammar": "wrong")", "grammar"},
      {WrongTool(R"("required")"), "tool_choice"},
      {WrongTool(R"({"type": "function", "function": {"name": "wrong"}})"), "tool_choice"},
      {R"("json_schema": "{}")", "json_schema"},
      {R"("grammar": "root ::= x", "json_schema": {})", "grammar"},
      {tools + R"(, "tool_choice": "required", "response_format": {"type": "json_object"})",
       "tool_choice"},
  };
  for (const auto& [more, param] : wrong) {
    const auto answer = Ask("/v1/chat/completions", Chat(more));
    EXPECT_EQ(answer->status(), 400) << more;
    EXPECT_EQ(TextAt(answer->json(), "error.param"), param) << answer->response().body;
  }
  EXPECT_TRUE(fixture.backend.requests.empty());
}

TEST_F(ConstraintsTest, CallsThatCannotBeRestrictedAreFree) {
  const auto answer = Ask("/v1/chat/completions", Chat(WrongTool(R"("auto")")));
  EXPECT_EQ(answer->status(), 200) << answer->response().body;
  EXPECT_EQ(TextAt(answer->json(), "warning"),
            "tool calls are not restricted to their schemas: tools: it is wrong");
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  EXPECT_EQ(fixture.backend.requests[0].constraint, nullptr);
}

TEST_F(ConstraintsTest, CallsDoNotWaitWhereManySchemasDo) {
  recorder->holds = true;
  std::vector<std::shared_ptr<testing::FakeExchange>> waiting(70);
  for (auto& answer : waiting) {
    answer = fixture.Post("/completion", R"({"prompt": "he", "grammar": "slow"})");
    // If the queue took the first job later, it would have room for one more.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (recorder->n_begun == 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(waiting.back()->status(), 429);
  const std::string tools = kTools;
  const auto forced =
      fixture.Post("/v1/chat/completions", Chat(tools + R"(, "tool_choice": "required")"));
  EXPECT_EQ(forced->status(), 429);
  const auto free = fixture.Post("/v1/chat/completions", Chat(tools));
  EXPECT_EQ(free->status(), 200) << free->response().body;
  EXPECT_NE(TextAt(free->json(), "warning").find("try again later"), std::string::npos);
  recorder->holds = false;
  for (const auto& answer : waiting) {
    if (!answer->ended()) answer->Wait();
  }
}

TEST_F(ConstraintsTest, OthersAreAnsweredMeanwhile) {
  recorder->holds = true;
  const auto slow = fixture.Post("/completion", R"({"prompt": "he", "grammar": "slow"})");
  EXPECT_FALSE(slow->ended());
  EXPECT_EQ(fixture.Post("/completion", R"({"prompt": "he"})")->status(), 200);
  EXPECT_FALSE(slow->ended());
  recorder->holds = false;
  slow->Wait();
  EXPECT_EQ(slow->status(), 200);
}

TEST_F(ConstraintsTest, WhoHasGoneSubmitsNothing) {
  recorder->holds = true;
  const auto slow = fixture.Post("/completion", R"({"prompt": "he", "grammar": "slow"})");
  const auto gone = fixture.Post("/completion", R"({"prompt": "he", "grammar": "gone"})");
  gone->Disconnect();
  recorder->holds = false;
  slow->Wait();
  const auto last = Ask("/completion", R"({"prompt": "he", "grammar": "last"})");
  EXPECT_EQ(last->status(), 200);
  EXPECT_EQ(recorder->specs.size(), 2U);
}

TEST_F(ConstraintsTest, ServersThatEndDoNotWaitForSchemas) {
  recorder->holds = true;
  const auto slow = fixture.Post("/completion", R"({"prompt": "he", "grammar": "slow"})");
  const auto next = fixture.Post("/completion", R"({"prompt": "he", "grammar": "next"})");
  fixture.service.SetDraining();
  for (const auto& answer : {slow, next}) {
    answer->Wait();
    EXPECT_EQ(answer->status(), 503);
  }
  EXPECT_TRUE(recorder->holds);
}

TEST(NoConstraintsTest, ErrorsNameTheOption) {
  Fixture fixture({}, kToolTemplate);
  for (const std::string& more :
       {std::string(R"("response_format": {"type": "json_object"})"),
        std::string(R"("json_schema": {})"), std::string(R"("grammar": "root ::= \"a\"")"),
        std::string(kTools) + R"(, "tool_choice": "required")",
        std::string(kTools) +
            R"(, "tool_choice": {"type": "function", "function": {"name": "get"}})"}) {
    const auto answer = fixture.Post("/v1/chat/completions", Chat(more));
    EXPECT_EQ(answer->status(), 400) << more;
    EXPECT_NE(TextAt(answer->json(), "error.message").find("-DWINNOW_GRAMMAR=ON"),
              std::string::npos);
    EXPECT_EQ(TextAt(answer->json(), "error.code"), "unsupported_parameter");
  }
}

}  // namespace
}  // namespace winnow::server
