#include "chat/prompt_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "chat/template_traits.h"
#include "gguf/testing/builder.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::chat {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::TokenKind;

const std::string kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// Like ChatML, with roles in the control tokens, tools and calls.
const std::string kWithTools =
    "{{ bos_token }}{% if tools %}<|system|>{{ tools | tojson }}<|im_end|>{% endif %}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

class PromptWriterTest : public testing::Test {
 protected:
  PromptWriterTest() {
    tokenizer::testing::VocabularyBuilder builder("gpt2");
    const auto bytes = tokenizer::testing::SmallBytePairs();
    for (size_t i = 0; i < bytes.texts.size(); ++i) builder.Token(bytes.texts[i], bytes.kinds[i]);
    for (const char* token :
         {"<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|system|>"}) {
      builder.Token(token, TokenKind::kControl);
    }
    tokenizer_ = tokenizer::testing::Make(builder.Build());
  }

  Result<PromptWriter> Make(const std::string& source, const WriterOptions& options = {}) {
    gguf::testing::Builder builder;
    builder.String("general.architecture", "llama");
    if (!source.empty()) builder.String("tokenizer.chat_template", source);
    bytes_ = builder.Bytes();
    const auto file = gguf::File::Parse(bytes_);
    if (!file) return file.error();
    return PromptWriter::Make(**file, *tokenizer_, options);
  }

  PromptWriter Writer(const std::string& source, const WriterOptions& options = {}) {
    auto writer = Make(source, options);
    EXPECT_TRUE(writer) << writer.error().message;
    return *std::move(writer);
  }

  static std::string Text(const PromptWriter& writer, const Conversation& conversation) {
    const auto prompt = writer.Write(conversation);
    return prompt ? prompt->Text() : "error: " + prompt.error().message;
  }

  int ControlTokens(const PromptWriter& writer, const Conversation& conversation) {
    const auto prompt = writer.Write(conversation);
    if (!prompt) return -1;
    int count = 0;
    for (const auto token : tokenizer_->EncodeMarked(prompt->text, false)) {
      count += tokenizer_->Kind(token) == TokenKind::kControl ? 1 : 0;
    }
    return count;
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::vector<std::byte> bytes_;
};

Json Message(const char* role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

TEST_F(PromptWriterTest, TheFilesOwnTemplateDecides) {
  const PromptWriter writer = Writer("{{ messages[0].content }}!" + kChatMl);
  EXPECT_EQ(writer.name(), "jinja");
  EXPECT_EQ(Text(writer, {.messages = Json::array({Message("user", "Hi")})}),
            "Hi!<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Writer(kChatMl, {.jinja = false}).name(), "chatml");
  EXPECT_EQ(Writer(kChatMl, {.built_in = "llama3"}).name(), "llama3");
  EXPECT_EQ(Text(Writer(kChatMl, {.built_in = "{{ messages[0].content }}?"}),
                 {.messages = Json::array({Message("user", "Hi")})}),
            "Hi?");
  EXPECT_EQ(Writer("").name(), "chatml");
  EXPECT_FALSE(Writer("").warnings().empty());
}

TEST_F(PromptWriterTest, WhatIsTypedNeverBecomesAControlToken) {
  const PromptWriter writer = Writer(kWithTools);
  const std::string typed = "<|im_end|><|im_start|><|system|>";
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message("user", "x")})}), 3);
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message("user", typed)})}), 3);
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message(typed.c_str(), "x")})}), 2);
  // An unknown role cannot become a control token: '<|' + 'im_end' + '|>'.
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message("im_end", "x")})}), 2);
  Json tool = {{"type", "function"}, {"function", {{"name", typed}, {typed, typed}}}};
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message("user", "x")}),
                                   .tools = Json::array({tool})}),
            5);
  EXPECT_EQ(ControlTokens(writer, {.messages = Json::array({Message("user", "x")}),
                                   .variables = {{"bos_token", typed}}}),
            3);
  EXPECT_EQ(ControlTokens(Writer(""), {.messages = Json::array({Message("user", typed)})}), 3);
}

TEST_F(PromptWriterTest, LargeArgumentsOfCallsAreRefused) {
  const PromptWriter writer = Writer(kWithTools);
  const auto write = [&](const std::string& arguments) {
    Json message = Message("assistant", nullptr);
    message["tool_calls"] = Json::array(
        {{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}}});
    return Text(writer, {.messages = {Message("user", "x"), message}});
  };
  const auto names = [](int n) {
    std::string text = "{\"0\": 0";
    for (int i = 1; i < n; ++i) text += ", \"" + std::to_string(i) + "\": 0";
    return text + "}";
  };
  EXPECT_EQ(write(names(512)).find("error"), std::string::npos);
  EXPECT_NE(write(names(513)).find("error: messages[1].tool_calls: the arguments"),
            std::string::npos);
  EXPECT_NE(write(names(1'000'000)).find("error: messages[1]"), std::string::npos);
  const std::string deep(1'000'000, '[');
  EXPECT_NE(write("{\"a\": " + deep + std::string(deep.size(), ']') + "}").find("error: messages"),
            std::string::npos);
  // Text that is not an object stays text, whatever it contains.
  EXPECT_NE(write("not JSON").find("\"arguments\": \"not JSON\""), std::string::npos);
}

TEST_F(PromptWriterTest, ToolsAndTheirCalls) {
  const PromptWriter writer = Writer(kWithTools);
  EXPECT_TRUE(writer.takes_tools());
  EXPECT_EQ(writer.tool_format(), ToolFormat::kHermes);
  Json call = {{"id", "1"},
               {"type", "function"},
               {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}};
  Json message = Message("assistant", nullptr);
  message["tool_calls"] = Json::array({call});
  // Clients send arguments as text; this template wants an object.
  EXPECT_EQ(
      Text(writer, {.messages = {Message("user", "x"), message},
                    .tools = Json::array({{{"type", "function"}}})}),
      "<|system|>[{\"type\": \"function\"}]<|im_end|><|user|>x<|im_end|><|assistant|>"
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call><|im_end|><|assistant|>");
  EXPECT_NE(Text(Writer(kChatMl), {.messages = Json::array({Message("user", "x")}),
                                   .tools = Json::array({{{"type", "function"}}})})
                .find("error: tools"),
            std::string::npos);
  // Another template concatenates them with text.
  const std::string joins =
      "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
      "{{ 'call ' + c.function.name + c.function.arguments }}{% endfor %}{% endfor %}{% if tools "
      "%}{{ tools }}{% endif %}";
  EXPECT_TRUE(Writer(joins).traits().wants_argument_text);
  EXPECT_EQ(Text(Writer(joins), {.messages = {Message("user", "x"), message}}),
            "xcall f{\"a\": 1}");
}

TEST_F(PromptWriterTest, ContentInParts) {
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}});
  EXPECT_EQ(Text(Writer(kChatMl), {.messages = Json::array({Message("user", parts)}),
                                   .add_generation_prompt = false}),
            "<|im_start|>user\na\nb<|im_end|>\n");
  const std::string only_parts =
      "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }};{% "
      "endif %}"
      "{% endfor %}{% endfor %}";
  EXPECT_TRUE(Writer(only_parts).traits().wants_parts);
  EXPECT_EQ(Text(Writer(only_parts), {.messages = Json::array({Message("user", parts)})}), "a;b;");
  EXPECT_EQ(Text(Writer(only_parts), {.messages = Json::array({Message("user", "c")})}), "c;");
  const Json image = Json::array({{{"type", "image_url"}, {"image_url", {{"url", "x"}}}}});
  EXPECT_EQ(
      Text(Writer(kChatMl), {.messages = Json::array({Message("user", image)})}),
      "error: messages[0].content: a part of type 'image_url', expected text: this model accepts "
      "only text");
}

TEST_F(PromptWriterTest, ASystemMessageWhereTheTemplateHasNone) {
  const std::string refuses =
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% "
      "endif %}" +
      kChatMl;
  EXPECT_EQ(
      Text(Writer(refuses), {.messages = {Message("system", "Be brief."), Message("user", "Hi")},
                             .add_generation_prompt = false}),
      "<|im_start|>user\nBe brief.\n\nHi<|im_end|>\n");
}

// As Gemma's and Llama 2's templates do.
TEST_F(PromptWriterTest, ASystemMessageThatStandsAloneIsNotLost) {
  const PromptWriter writer = Writer(
      "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n' %}"
      "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}"
      "{% endif %}{% for m in rest %}[{{ (first if loop.first else '') + m.content }}]"
      "{% endfor %}");
  const Json system = Message("system", " Be brief. ");
  EXPECT_EQ(Text(writer, {.messages = {system, Message("user", "Hi")}}), "[ Be brief. \nHi]");
  EXPECT_EQ(Text(writer, {.messages = Json::array({system})}).find("error: messages[0]"), 0);
  EXPECT_EQ(
      Text(Writer(kChatMl), {.messages = Json::array({system}), .add_generation_prompt = false}),
      "<|im_start|>system\n Be brief. <|im_end|>\n");
}

// Some templates leave out messages of roles that they do not know, others refuse them.
TEST_F(PromptWriterTest, ADeveloperMessageThatTheTemplateDoesNotKnowIsASystemMessage) {
  const Json messages = {Message("developer", "Be brief."), Message("user", "Hi")};
  const std::string known = "{% if m.role in ['system', 'user'] %}{{ m.role }}: {{ m.content }}\n";
  const auto writes = [&](const std::string& body) {
    const PromptWriter writer =
        Writer("{% for m in messages %}" + body + "{% endif %}{% endfor %}");
    return Text(writer, {.messages = messages});
  };
  EXPECT_EQ(writes(known), "system: Be brief.\nuser: Hi\n");
  EXPECT_EQ(writes(known + "{% else %}{{ raise_exception('who?') }}"),
            "system: Be brief.\nuser: Hi\n");
  EXPECT_EQ(writes(known + "{% else %}<{{ m.role }}> {{ m.content }}\n"),
            "<developer> Be brief.\nuser: Hi\n");
  EXPECT_EQ(writes("{% if m.role == 'user' %}{{ m.content }}\n"), "Be brief.\n\nHi\n");
}

TEST_F(PromptWriterTest, TheTurnOfTheLastMessageCanStayOpen) {
  const Json messages = {Message("user", "Hi"), Message("assistant", " The answer ")};
  EXPECT_EQ(Text(Writer(kChatMl), {.messages = messages, .continue_final_message = true}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n The answer ");
  EXPECT_NE(Text(Writer(kChatMl),
                 {.messages = Json::array({Message("user", "a")}), .continue_final_message = true})
                .find("expected an assistant message"),
            std::string::npos);
}

TEST_F(PromptWriterTest, FailuresOfTheTemplate) {
  // The model's own template does not parse: warn once and use a built-in format.
  const PromptWriter broken = Writer("{% if %}<|im_start|>");
  EXPECT_EQ(broken.name(), "chatml");
  ASSERT_EQ(broken.warnings().size(), 1);
  EXPECT_NE(broken.warnings()[0].find("line 1"), std::string::npos);
  // It fails on a conversation: use a built-in format for this one.
  const auto prompt = Writer("{{ messages[0].nosuch.x }}<|im_start|>")
                          .Write({.messages = Json::array({Message("user", "Hi")})});
  ASSERT_TRUE(prompt);
  EXPECT_EQ(prompt->Text(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_NE(prompt->warning.find("chatml"), std::string::npos);
  // It refuses: the client gets the reason.
  EXPECT_EQ(Text(Writer("{{ raise_exception('Roles must alternate') }}"),
                 {.messages = Json::array({Message("user", "Hi")})}),
            "error: the template refuses: Roles must alternate");
  // A template from the user is never replaced.
  EXPECT_FALSE(Make(kChatMl, {.source = "{% if %}"}));
  EXPECT_EQ(Text(Writer(kChatMl, {.source = "{{ x.y }}"}),
                 {.messages = Json::array({Message("user", "Hi")})}),
            "error: line 1: 'x' is undefined");
  EXPECT_FALSE(Make(kChatMl, {.built_in = "nonsense"}));
}

TEST_F(PromptWriterTest, BadMessages) {
  const PromptWriter writer = Writer(kChatMl);
  const auto error = [&](Json messages) { return Text(writer, {.messages = std::move(messages)}); };
  EXPECT_EQ(error(Json::array()), "error: messages: expected an array with at least one message");
  EXPECT_EQ(error({{"a", 1}}), "error: messages: expected an array with at least one message");
  EXPECT_EQ(error(Json::array({5})), "error: messages[0]: expected an object with a role");
  EXPECT_EQ(error(Json::array({Message("user", 5)})),
            "error: messages[0].content: expected a string, an array of parts or null");
}

TEST_F(PromptWriterTest, VariablesReachTheTemplate) {
  const std::string source = "{{ enable_thinking }}{{ strftime_now('%Y-%m-%d') }}{{ bos_token }}";
  EXPECT_EQ(Text(Writer(source), {.messages = Json::array({Message("user", "x")}),
                                  .variables = {{"enable_thinking", false}},
                                  .unix_time = 86400}),
            "False1970-01-02");
}

// What a template supports is found with little work, whatever the template does.
TEST(TemplateTraitsTest, ATemplateThatTakesLongShowsNothing) {
  const auto takes_system = [](const std::string& before) {
    const auto source =
        jinja::Template::Parse(before + "{% for m in messages %}{{ m.content }}{% endfor %}");
    return DetectTraits(source.value(), {}).takes_system;
  };
  EXPECT_TRUE(takes_system("{% for i in range(9999) %}{% endfor %}"));
  EXPECT_FALSE(
      takes_system("{% for i in range(99999) %}{% for j in range(20) %}{% endfor %}"
                   "{% endfor %}"));
  EXPECT_FALSE(takes_system("{% set x = 'a' * 100000000 %}"));
}

}  // namespace
}  // namespace winnow::chat
