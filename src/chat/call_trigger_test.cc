#include "chat/call_trigger.h"

#include <gtest/gtest.h>

#include <vector>

namespace winnow::chat {
namespace {

// For each call that begins in the text: its text in the piece that completes the trigger.
std::vector<std::string> CallsIn(const std::vector<std::string>& pieces,
                                 const AnswerOptions& options) {
  CallTrigger trigger(options, {"a", "b\"c"});
  std::vector<std::string> calls;
  for (const std::string& piece : pieces) {
    const auto seen = trigger.Peek(piece);
    const auto call = trigger.Push(piece);
    EXPECT_EQ(seen, call) << piece;
    if (call) {
      EXPECT_NE(piece.find_first_of(TriggerEnds(options.tools)), std::string::npos) << piece;
      calls.push_back(*call);
    }
  }
  return calls;
}

std::vector<std::string> Bytes(const std::string& text) {
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  return bytes;
}

using Calls = std::vector<std::string>;

TEST(CallTriggerTest, Hermes) {
  const AnswerOptions options = {.tools = ToolFormat::kHermes};
  EXPECT_EQ(CallsIn({"Well: a <b> ", "<tool_call>", "\n{\"name\""}, options), Calls{""});
  EXPECT_EQ(CallsIn({"<tool", "_call", ">\n{\"", "name"}, options), Calls{"\n{\""});
  EXPECT_EQ(CallsIn({"<tool_call", ">x"}, options), Calls{"x"}) << "whatever follows the marker";
  EXPECT_EQ(CallsIn({"<tool_calls>", "</tool_call>", "{\"name\": \"a\"}"}, options), Calls{});
  const std::string call =
      "<tool_call>{\"name\": \"a\", \"arguments\": {\"b\": \"<tool_call>\"}}</tool_call>";
  EXPECT_EQ(CallsIn(Bytes("x " + call + " y\n" + call), options), (Calls{"", ""}));
}

TEST(CallTriggerTest, NotInReasoning) {
  AnswerOptions options = {.tools = ToolFormat::kHermes};
  const std::string rest = "<tool_call> is how</think>\n<tool_call>{";
  EXPECT_EQ(CallsIn(Bytes("<think>" + rest), options), Calls{""});
  EXPECT_EQ(CallsIn({"<think>", "<tool_call>"}, options), Calls{});
  options.starts_in_reasoning = true;
  EXPECT_EQ(CallsIn(Bytes(rest), options), Calls{""});
}

TEST(CallTriggerTest, Llama3) {
  const AnswerOptions options = {.tools = ToolFormat::kLlama3};
  EXPECT_EQ(CallsIn({"Well ", "<|python_tag|>", "{"}, options), Calls{""});
  EXPECT_EQ(CallsIn({" {", " \"", "name", "\": \"a\""}, options), Calls{"{ \"name\": \"a\""});
  EXPECT_EQ(CallsIn({"{\"name\":", "\"a\","}, options), Calls{"{\"name\":\"a\","});
  EXPECT_EQ(CallsIn(Bytes("{\"name\": \"b\\\"c\"}"), options), Calls{"{\"name\": \"b\\\"c\""});
  EXPECT_EQ(CallsIn(Bytes("Well {\"name\": \"a\"}"), options), Calls{}) << "not at the beginning";
  for (const char* text :
       {"{\"name\": \"Bob\", \"age\": 7}", "{\"name\": 1, \"name\": \"a\"}", "{\"name\"x: \"a\"}",
        "{\"x\": 1, \"name\": \"a\"}", "{\"name\": \"Bob\"}; {\"name\": \"Ann\"}"}) {
    EXPECT_EQ(CallsIn(Bytes(text), options), Calls{}) << text;
    EXPECT_EQ(CallsIn({text}, options), Calls{}) << text;
  }
  EXPECT_EQ(CallsIn(Bytes("{\"a\": {\"name\": \"<|python_tag|>\"}}"), options), Calls{});
  const std::string call = "{\"name\": \"a\", \"parameters\": {}}";
  EXPECT_EQ(CallsIn(Bytes(call + "; " + call), options),
            (Calls{"{\"name\": \"a\"", "{\"name\": \"a\""}));
}

TEST(CallTriggerTest, MuchWhiteSpaceBefore) {
  const std::string spaces(1000, ' ');
  EXPECT_EQ(CallsIn({spaces + "<tool_", "call", ">x"}, {.tools = ToolFormat::kHermes}), Calls{"x"});
  EXPECT_EQ(CallsIn({"Well" + spaces, "[TOOL_CALLS]"}, {.tools = ToolFormat::kMistral}), Calls{""});
  const AnswerOptions options = {.tools = ToolFormat::kLlama3};
  EXPECT_EQ(CallsIn({spaces, "{\"name\": \"a", "\""}, options), Calls{"{\"name\": \"a\""});
  EXPECT_EQ(CallsIn({spaces, "{\"name\": \"a\""}, options), Calls{"{\"name\": \"a\""});
  EXPECT_EQ(CallsIn({"{" + spaces, "\"name\": \"a\""}, options),
            Calls{"{" + spaces + "\"name\": \"a\""});
}

TEST(CallTriggerTest, Mistral) {
  const AnswerOptions options = {.tools = ToolFormat::kMistral};
  EXPECT_EQ(CallsIn({"[TOOL_CALLS]", " [{\"name\""}, options), Calls{""});
  EXPECT_EQ(CallsIn({"[TOOL", "_CALLS", "] [", "{"}, options), Calls{" ["});
  EXPECT_EQ(CallsIn({"[TOOL_CALLS]", "a", "[ARGS]", "{}", "[TOOL_CALLS]", "b"}, options),
            (Calls{"", ""}));
}

TEST(CallTriggerTest, InThePieceThatEndsWhatWasBefore) {
  const std::string call = "{\"name\": \"a\"";
  EXPECT_EQ(CallsIn({"<tool_call>", call + "}", "</tool_call><tool_call>{"},
                    {.tools = ToolFormat::kHermes}),
            (Calls{"", "{"}));
  const AnswerOptions options = {.tools = ToolFormat::kLlama3};
  EXPECT_EQ(CallsIn({"<think>", "x</think>\n" + call, ", "}, options), Calls{call});
  EXPECT_EQ(CallsIn({"{\"name\": \"Bob\", \"parameters\": {", "}}; ", call}, options), Calls{call});
}

TEST(CallTriggerTest, NoTools) {
  EXPECT_EQ(CallsIn({"<tool_call>", "[TOOL_CALLS]", "{\"name\""}, {}), Calls{});
}

}  // namespace
}  // namespace winnow::chat
