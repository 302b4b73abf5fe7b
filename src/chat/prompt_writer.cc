#include "chat/prompt_writer.h"

#include <utility>

namespace winnow::chat {
namespace {

// The text of OpenAI's content: a text, a list of text parts, or null.
Result<std::string> ContentIn(const nlohmann::ordered_json& message, const std::string& where) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return std::string();
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) return Error{where + ": its content is no text"};
  std::string text;
  for (const auto& part : *content) {
    if (!part.is_object() || part.value("type", "") != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      return Error{where + ": only parts of type text are understood"};
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace

std::string Prompt::Text() const {
  std::string joined;
  for (const tokenizer::MarkedText& stretch : text) joined += stretch.text;
  return joined;
}

Result<PromptWriter> PromptWriter::Make(const gguf::File& file, const tokenizer::Tokenizer&,
                                        const WriterOptions& options) {
  if (!options.built_in.empty()) {
    WINNOW_ASSIGN(const auto format, tokenizer::ChatTemplate::ByName(options.built_in));
    return PromptWriter(format, {});
  }
  WINNOW_ASSIGN(const auto source, file.String("tokenizer.chat_template"));
  WINNOW_ASSIGN(
      const auto choice,
      tokenizer::DetectChatTemplate(options.source.empty() ? source.value_or("") : options.source));
  std::vector<std::string> warnings;
  if (!choice.warning.empty()) warnings.push_back(choice.warning);
  return PromptWriter(choice.chat_template, std::move(warnings));
}

Result<Prompt> PromptWriter::Write(const Conversation& conversation) const {
  if (!conversation.tools.is_null()) return Error{"the chat template takes no tools"};
  std::vector<tokenizer::ChatMessage> messages;
  for (const auto& message : conversation.messages) {
    const std::string where = "message " + std::to_string(messages.size());
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return Error{where + " has no role"};
    }
    WINNOW_ASSIGN(std::string content, ContentIn(message, where));
    messages.push_back({message["role"].get<std::string>(), std::move(content)});
  }
  WINNOW_ASSIGN(auto text, template_.Format(messages, conversation.add_generation_prompt));
  return Prompt{std::move(text), {}};
}

}  // namespace winnow::chat
