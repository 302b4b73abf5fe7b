// ChatTemplate: rendered prompts, and prompts split after a document.
#include <gtest/gtest.h>

#include <filesystem>

#include "api/tiny_model_test.h"
#include "winnow/winnow.h"

namespace winnow {
namespace {

constexpr const char* kSource =
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}></s>{% endif %}";

class ApiChat : public TinyModelTest {
 protected:
  ApiChat() : TinyModelTest(1) {}

  ChatTemplate NewTemplate() { return model_->NewChatTemplate({.source = kSource}).value(); }
  static std::string Joined(const std::vector<MarkedText>& text) {
    std::string joined;
    for (const MarkedText& stretch : text) joined += stretch.text;
    return joined;
  }
};

TEST_F(ApiChat, ATemplateMarksWhatIsItsOwn) {
  const std::vector<ChatMessage> messages = {{"user", "Who </s> are you?"}};
  const ChatTemplate chat_template = NewTemplate();
  EXPECT_EQ(chat_template.name(), "jinja");
  EXPECT_EQ(chat_template.source(), kSource);
  EXPECT_TRUE(chat_template.warnings().empty());
  const WrittenPrompt prompt = chat_template.Write(messages).value();
  EXPECT_EQ(Joined(prompt.text), "user:Who </s> are you?;></s>");
  EXPECT_TRUE(prompt.warning.empty());
  for (const MarkedText& stretch : prompt.text) {
    EXPECT_EQ(stretch.parse_special, stretch.text.find("Who") == std::string::npos);
  }
  const std::vector<Token> tokens = model_->Tokenize(prompt.text);
  EXPECT_EQ(tokens, model_->ChatPrompt(messages, {.chat_template = kSource}).value());
  EXPECT_EQ(tokens.front(), 1);  // BOS
  EXPECT_EQ(model_->Tokenize(prompt.text, /*add_bos=*/false),
            std::vector<Token>(tokens.begin() + 1, tokens.end()));
  EXPECT_EQ(Joined(chat_template.Write(messages, {.add_generation_prompt = false})->text),
            "user:Who </s> are you?;");
  EXPECT_EQ(chat_template.Write(messages, {.tools = "{"}).error().code, ErrorCode::kInvalid);
}

TEST_F(ApiChat, APromptIsCutBehindItsDocument) {
  const ChatTemplate chat_template = NewTemplate();
  const std::string document = " \nA harbour. </s> Ships.\n\n";
  const DocumentPrompt first = chat_template.WriteDocument("Brief!", document, "How many?").value();
  const DocumentPrompt second = chat_template.WriteDocument("Brief!", document, "Where?").value();
  EXPECT_EQ(first.document, second.document);
  EXPECT_EQ(Joined(first.document), "system:Brief!;user:A harbour. </s> Ships.");
  EXPECT_EQ(Joined(first.question), "\n\nHow many?;></s>");
  EXPECT_EQ(Joined(second.question), "\n\nWhere?;></s>");
  EXPECT_FALSE(first.document.back().parse_special);
  EXPECT_TRUE(first.question.back().parse_special);
  const auto empty = chat_template.WriteDocument("", " \n", "How many?");
  EXPECT_EQ(empty.error().message, "the document is empty");
  EXPECT_EQ(empty.error().code, ErrorCode::kInvalid);
}

TEST_F(ApiChat, ATemplateNeedsNoModel) {
  const ChatTemplate chat_template = NewTemplate();
  model_.reset();
  EXPECT_EQ(Joined(chat_template.Write(std::vector<ChatMessage>{{"user", "Hi"}})->text),
            "user:Hi;></s>");
}

TEST_F(ApiChat, ATemplateThatIsNoneIsRefused) {
  EXPECT_EQ(model_->NewChatTemplate({.name = "chatml"}).value().name(), "chatml");
  EXPECT_EQ(model_->NewChatTemplate({.name = "chatml"}).value().source(), "");
  for (const ChatTemplateOptions& options : {ChatTemplateOptions{.name = "no-such-format"},
                                             ChatTemplateOptions{.source = "{% for %}"}}) {
    const auto refused = model_->NewChatTemplate(options);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
}

// If a template cannot write a document, the warning says so.
TEST_F(ApiChat, ADocumentSaysWhatStandsInForItsTemplate) {
  const std::string path = path_ + ".template";
  model::testing::TinySpec spec;
  auto builder = model::testing::TinyBuilder(spec);
  model::testing::AddTinyTokenizer(builder, spec.vocabulary);
  builder.String("tokenizer.chat_template",
                 "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                 "{% endfor %}{{ 1 // 0 }}");
  builder.Write(path);
  const ChatTemplate fails = Model::Open(path, {.threads = 1}).value().NewChatTemplate().value();
  std::filesystem::remove(path);
  const DocumentPrompt failed = fails.WriteDocument("", "A harbour.", "How many?").value();
  EXPECT_NE(failed.warning.find("the model's chat template failed"), std::string::npos)
      << failed.warning;
  EXPECT_NE(Joined(failed.question).find("How many?"), std::string::npos);

  const ChatTemplate changes =
      model_->NewChatTemplate({.source = "{{ messages[0].content | upper }}"}).value();
  const DocumentPrompt changed = changes.WriteDocument("", "A harbour.", "How many?").value();
  EXPECT_NE(changed.warning.find("changes the document's text"), std::string::npos)
      << changed.warning;
  EXPECT_NE(Joined(changed.document).find("A harbour."), std::string::npos);
  EXPECT_EQ(NewTemplate().WriteDocument("", "A harbour.", "How many?")->warning, "");
}

}  // namespace
}  // namespace winnow
