#include "chat/answer_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace winnow::chat {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  std::string id = {};
  bool operator==(const Call&) const = default;
};
struct Parsed {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  bool operator==(const Parsed&) const = default;
};
void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "content '" << parsed.content << "' reasoning '" << parsed.reasoning << "'";
  for (const Call& call : parsed.calls) *out << " " << call.name << "(" << call.arguments << ")";
}

void Add(const AnswerDelta& delta, Parsed* out) {
  out->content += delta.content;
  out->reasoning += delta.reasoning;
  for (const ToolCallDelta& call : delta.tool_calls) {
    const auto index = static_cast<size_t>(call.index);
    if (index == out->calls.size()) {
      EXPECT_FALSE(call.name.empty());
      out->calls.push_back({call.name, call.arguments, call.id});
    } else {
      ASSERT_EQ(index + 1, out->calls.size());
      EXPECT_TRUE(call.name.empty());
      out->calls.back().arguments += call.arguments;
    }
  }
}

Parsed ParseInPieces(const std::string& text, const AnswerOptions& options, size_t piece) {
  AnswerParser parser(options);
  Parsed out;
  for (size_t at = 0; at < text.size(); at += piece) {
    Add(parser.Push(std::string_view(text).substr(at, piece)), &out);
  }
  Add(parser.Finish(), &out);
  return out;
}

// The result must not depend on how the text is cut.
Parsed Parse(const std::string& text, const AnswerOptions& options) {
  Parsed whole = ParseInPieces(text, options, text.size() + 1);
  for (const size_t piece : {1, 2, 3, 5, 7, 11, 13}) {
    EXPECT_EQ(ParseInPieces(text, options, piece), whole) << text << " in pieces of " << piece;
  }
  return whole;
}

Parsed Hermes(const std::string& text) { return Parse(text, {.tools = ToolFormat::kHermes}); }
Parsed Llama(const std::string& text) { return Parse(text, {.tools = ToolFormat::kLlama3}); }
Parsed Mistral(const std::string& text) { return Parse(text, {.tools = ToolFormat::kMistral}); }

TEST(AnswerParser, TextIsContent) {
  EXPECT_EQ(Parse("Hello, world. \n", {}), (Parsed{"Hello, world. \n", "", {}}));
  EXPECT_EQ(Hermes(" a <tool or < tool_call> \n"), (Parsed{" a <tool or < tool_call> \n", "", {}}));
  EXPECT_EQ(Parse("<tool_call>{\"name\": \"f\"}</tool_call>", {}),
            (Parsed{"<tool_call>{\"name\": \"f\"}</tool_call>", "", {}}));
  EXPECT_EQ(Hermes(""), Parsed());
}

TEST(AnswerParser, ReasoningComesFirst) {
  EXPECT_EQ(Hermes("<think>\nTwo and\n two.\n</think>\n\nFour."),
            (Parsed{"Four.", "Two and\n two.", {}}));
  EXPECT_EQ(Parse("Ah. \n</think> Four", {.starts_in_reasoning = true}),
            (Parsed{"Four", "Ah.", {}}));
  EXPECT_EQ(Hermes("a <think>b</think>"), (Parsed{"a <think>b</think>", "", {}}));
  EXPECT_EQ(Hermes("<think>cut sho"), (Parsed{"", "cut sho", {}}));
  EXPECT_EQ(Hermes("<thin"), (Parsed{"<thin", "", {}}));
  EXPECT_EQ(Parse("<think>a</think>b", {.reasoning = false}),
            (Parsed{"<think>a</think>b", "", {}}));
  EXPECT_EQ(Hermes("<think>a</think><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
            (Parsed{"", "a", {{"f", "{}"}}}));
  EXPECT_TRUE(EndsInReasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(EndsInReasoning("<think>\n\n</think>\n\n"));
}

TEST(AnswerParser, HermesCalls) {
  EXPECT_EQ(Hermes("Let me see.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1, {}], "
                   "\"b\": \"x\"}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"z\": 1.5}, "
                   "\"name\": \"put\"}\n</tool_call>\n"),
            (Parsed{"Let me see.",
                    "",
                    {{"get", "{\"a\": [1, {}], \"b\": \"x\"}"}, {"put", "{\"z\": 1.5}"}}}));
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\"}</tool_call>"), (Parsed{"", "", {{"f", "{}"}}}));
  EXPECT_EQ(
      Hermes("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call> So."),
      (Parsed{"So.", "", {{"f", "{\"a\": 1}"}}}));
}

TEST(AnswerParser, TagsWithinStringsAreText) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"say\", \"arguments\": {\"text\": \"</tool_call> } ] "
                   "\\\" <tool_call>{\"}}</tool_call>"),
            (Parsed{"", "", {{"say", "{\"text\": \"</tool_call> } ] \\\" <tool_call>{\"}"}}}));
}

TEST(AnswerParser, WhatIsNoCallIsContent) {
  for (const char* text :
       {"<tool_call> is a tag", "<tool_call>{\"nam\": 1}</tool_call>", "<tool_call>[1]</tool_call>",
        "x <tool_call>{\"name\": 5, \"arguments\": {}}</tool_call> y", "<tool_call>",
        "<tool_call>{", "<tool_call>{\"name\": \"\", \"arguments\": {}}",
        "<tool_call>{\"name\" \"f\"}"}) {
    EXPECT_EQ(Hermes(text), (Parsed{text, "", {}})) << text;
  }
  EXPECT_EQ(Hermes("<tool_call> no <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
            (Parsed{"<tool_call> no", "", {{"f", "{}"}}}));
}

TEST(AnswerParser, ACallThatIsCutShortIsACall) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"lon"),
            (Parsed{"", "", {{"f", "{\"a\": \"lon"}}}));
}

TEST(AnswerParser, WhatIsACallStaysOneWhateverFollows) {
  EXPECT_EQ(Hermes("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1} x"),
            (Parsed{"x", "", {{"f", "{\"a\": 1}"}}}));
  EXPECT_EQ(
      Hermes("<tool_call>{\"id\": \"1\", \"name\": \"f\", \"arguments\": {}, \"name\": \"g\", "
             "\"id\": \"2\"}</tool_call>"),
      (Parsed{"", "", {{"f", "{}", "1"}}}));
}

TEST(AnswerParser, ArgumentsAreStreamed) {
  AnswerParser parser({.tools = ToolFormat::kHermes});
  EXPECT_TRUE(parser.Push("<tool_call>{\"name\": \"f\", \"argu").empty());
  const AnswerDelta first = parser.Push("ments\": {\"a\"");
  ASSERT_EQ(first.tool_calls.size(), 1);
  EXPECT_EQ(first.tool_calls[0].name, "f");
  EXPECT_EQ(first.tool_calls[0].arguments, "{\"a\"");
  const AnswerDelta second = parser.Push(": 1");
  ASSERT_EQ(second.tool_calls.size(), 1);
  EXPECT_EQ(second.tool_calls[0].arguments, ": 1");
}

TEST(AnswerParser, LlamaCalls) {
  EXPECT_EQ(Llama("{\"name\": \"get\", \"parameters\": {\"a\": 1}}"),
            (Parsed{"", "", {{"get", "{\"a\": 1}"}}}));
  EXPECT_EQ(Llama("<|python_tag|>{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", "
                  "\"parameters\": {\"c\": \"}\"}}"),
            (Parsed{"", "", {{"a", "{}"}, {"b", "{\"c\": \"}\"}"}}}));
  EXPECT_EQ(Llama("{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}"),
            (Parsed{"", "", {{"f", "{}"}}}));
  for (const char* text :
       {"{\"name\": \"Bo\", \"age\": 5}", "{ is a brace", "see {\"name\": \"f\"}",
        "{\"name\": \"Bo\"", "<|python_tag|>print(1)"}) {
    EXPECT_EQ(Llama(text), (Parsed{text, "", {}})) << text;
  }
}

TEST(AnswerParser, MistralCalls) {
  EXPECT_EQ(Mistral("[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": "
                    "\"abc123def\"}, {\"name\": \"g\", \"arguments\": {}}]"),
            (Parsed{"", "", {{"f", "{\"a\": \"]\"}", "abc123def"}, {"g", "{}"}}}));
  EXPECT_EQ(
      Mistral("Yes.[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": \"}\"}}[TOOL_CALLS]g[CALL_ID]xyz[ARGS]{}"),
      (Parsed{"Yes.", "", {{"f", "{\"a\": {\"b\": \"}\"}}"}, {"g", "{}", "xyz"}}}));
  for (const char* text : {"[TOOL_CALLS", "[TOOL_CALLS] []", "[TOOL_CALLS] no such thing {}"}) {
    EXPECT_EQ(Mistral(text), (Parsed{text, "", {}})) << text;
  }
}

TEST(AnswerParser, MistralNamesHave256BytesAtMost) {
  const std::string name(256, 'f');
  EXPECT_EQ(Mistral("[TOOL_CALLS]" + name + "{}"), (Parsed{"", "", {{name, "{}"}}}));
  for (const std::string& text :
       {"[TOOL_CALLS]" + name + "f{}", "[TOOL_CALLS]f[ARGS]" + name + "{}"}) {
    EXPECT_EQ(Mistral(text), (Parsed{text, "", {}})) << text;
  }
}

TEST(ToolFormat, IsKnownByTheTemplate) {
  EXPECT_EQ(DetectToolFormat("{{ '[TOOL_CALLS]' }}"), ToolFormat::kMistral);
  EXPECT_EQ(DetectToolFormat("{{ '<tool_call>\\n' }}"), ToolFormat::kHermes);
  EXPECT_EQ(DetectToolFormat("<|start_header_id|>{{ '\"parameters\": ' }}"), ToolFormat::kLlama3);
  EXPECT_EQ(DetectToolFormat("{% if tools %}"), ToolFormat::kHermes);
  EXPECT_EQ(DetectToolFormat("{{ messages }}"), ToolFormat::kNone);
}

}  // namespace
}  // namespace winnow::chat
