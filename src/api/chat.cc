// ChatTemplate, and Model's functions that use one.
#include <string>
#include <utility>
#include <vector>

#include "api/convert.h"
#include "api/impl.h"
#include "chat/document.h"
#include "winnow/model.h"

namespace winnow {
namespace {

constexpr int kMaxToolLevels = 64;

Result<nlohmann::ordered_json> ToolsFrom(const std::string& text) {
  bool too_deep = false;  // deeper values are dropped, so that nothing recurses into them
  const auto keep = [&](int depth, nlohmann::ordered_json::parse_event_t,
                        const nlohmann::ordered_json&) {
    too_deep = too_deep || depth > kMaxToolLevels;
    return depth <= kMaxToolLevels;
  };
  nlohmann::ordered_json tools = nlohmann::ordered_json::parse(text, keep, /*throw=*/false);
  if (too_deep) {
    return Error{
        .message = "tools: nested more than " + std::to_string(kMaxToolLevels) + " levels deep",
        .code = ErrorCode::kInvalid};
  }
  if (!tools.is_array()) {
    return Error{.message = "tools: expected a JSON array of tools as in OpenAI's API",
                 .code = ErrorCode::kInvalid};
  }
  return tools;
}

std::vector<MarkedText> MarkedTextFrom(std::vector<tokenizer::MarkedText> stretches) {
  std::vector<MarkedText> text;
  text.reserve(stretches.size());
  for (tokenizer::MarkedText& stretch : stretches) {
    text.push_back({std::move(stretch.text), stretch.parse_special});
  }
  return text;
}

}  // namespace

std::string_view ChatTemplate::name() const { return impl_->writer.name(); }
const std::string& ChatTemplate::source() const { return impl_->writer.source(); }
const std::vector<std::string>& ChatTemplate::warnings() const { return impl_->writer.warnings(); }

Result<WrittenPrompt> ChatTemplate::Write(std::span<const ChatMessage> messages,
                                          const ChatOptions& options) const {
  std::vector<tokenizer::ChatMessage> written;
  written.reserve(messages.size());
  for (const ChatMessage& message : messages) written.push_back({message.role, message.content});
  chat::Conversation conversation = chat::ConversationNow(written);
  if (!options.tools.empty()) {
    WINNOW_ASSIGN(conversation.tools, ToolsFrom(options.tools));
  }
  conversation.add_generation_prompt = options.add_generation_prompt;
  WINNOW_ASSIGN(chat::Prompt prompt,
                api::WithCode(impl_->writer.Write(conversation), ErrorCode::kInvalid));
  return WrittenPrompt{.text = MarkedTextFrom(std::move(prompt.text)),
                       .warning = std::move(prompt.warning)};
}

Result<DocumentPrompt> ChatTemplate::WriteDocument(const std::string& system,
                                                   const std::string& document,
                                                   const std::string& question) const {
  WINNOW_ASSIGN(chat::DocumentPrompt prompt,
                api::WithCode(chat::DocumentQuestion(impl_->writer, system, document, question),
                              ErrorCode::kInvalid));
  return DocumentPrompt{.document = MarkedTextFrom(std::move(prompt.document)),
                        .question = MarkedTextFrom(std::move(prompt.question)),
                        .warning = std::move(prompt.warning)};
}

Result<ChatTemplate> Model::NewChatTemplate(const ChatTemplateOptions& options) const {
  const runtime::Engine& engine = *impl_->engine;
  WINNOW_ASSIGN(chat::PromptWriter writer,
                api::WithCode(chat::PromptWriter::Make(engine.file(), engine.tokenizer(),
                                                       {.built_in = options.name,
                                                        .source = options.source,
                                                        .jinja = options.jinja}),
                              ErrorCode::kInvalid));
  return ChatTemplate(
      std::make_shared<const ChatTemplate::Impl>(ChatTemplate::Impl{.writer = std::move(writer)}));
}

Result<std::vector<Token>> Model::ChatPrompt(std::span<const ChatMessage> messages,
                                             const ChatOptions& options) const {
  const auto warn = [&](const std::string& warning) {
    if (!warning.empty() && impl_->on_warning) impl_->on_warning(warning);
  };
  const bool own = options.chat_template.empty();
  std::optional<ChatTemplate> writer = own ? impl_->own_template : std::nullopt;
  if (!writer) {
    WINNOW_ASSIGN(writer, NewChatTemplate({.name = options.chat_template}));
    for (const std::string& warning : writer->warnings()) warn(warning);
    if (own) impl_->own_template = writer;
  }
  WINNOW_ASSIGN(const WrittenPrompt prompt, writer->Write(messages, options));
  warn(prompt.warning);
  return Tokenize(prompt.text);
}

}  // namespace winnow
