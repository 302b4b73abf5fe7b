#include "chat/document.h"

#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/trim.h"

namespace winnow::chat {

using tokenizer::ChatMessage;
using tokenizer::ChatTemplate;
using tokenizer::MarkedText;

namespace {

// Templates may trim their input, and the cut needs the text as it is rendered.
Result<std::string> TrimmedDocument(const std::string& document) {
  const std::string_view text = Trimmed(document);
  if (text.empty()) return Error{"the document is empty"};
  return std::string(text);
}

std::vector<ChatMessage> MessagesOn(const std::string& text, const std::string& system,
                                    const std::string& question) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", text + "\n\n" + question});
  return messages;
}

// Cuts a prompt after the document's text; nullopt: it does not contain the text.
std::optional<DocumentPrompt> CutBehind(const std::string& text,
                                        const std::vector<MarkedText>& all) {
  DocumentPrompt prompt;
  bool found = false;
  for (const MarkedText& stretch : all) {
    const size_t at = found || stretch.parse_special ? std::string::npos : stretch.text.find(text);
    if (at == std::string::npos) {
      (found ? prompt.question : prompt.document).push_back(stretch);
      continue;
    }
    found = true;
    prompt.document.push_back({stretch.text.substr(0, at + text.size()), false});
    prompt.question.push_back({stretch.text.substr(at + text.size()), false});
  }
  if (!found) return std::nullopt;
  return prompt;
}

}  // namespace

Result<DocumentPrompt> DocumentQuestion(const ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question) {
  WINNOW_ASSIGN(const std::string text, TrimmedDocument(document));
  WINNOW_ASSIGN(const std::vector<MarkedText> all,
                chat_template.Format(MessagesOn(text, system, question), true));
  std::optional<DocumentPrompt> prompt = CutBehind(text, all);
  WINNOW_CHECK(prompt.has_value());
  return *std::move(prompt);
}

Result<DocumentPrompt> DocumentQuestion(const PromptWriter& writer, const std::string& system,
                                        const std::string& document, const std::string& question) {
  WINNOW_ASSIGN(const std::string text, TrimmedDocument(document));
  WINNOW_ASSIGN(Prompt written, writer.Write(ConversationNow(MessagesOn(text, system, question))));
  if (auto prompt = CutBehind(text, written.text)) {
    prompt->warning = std::move(written.warning);
    return *std::move(prompt);
  }
  WINNOW_ASSIGN(DocumentPrompt prompt,
                DocumentQuestion(writer.built_in(), system, document, question));
  prompt.warning = "the chat template changes the document's text: the built-in format " +
                   std::string(writer.built_in().name()) + " was used";
  return prompt;
}

Conversation ConversationNow(std::span<const ChatMessage> messages) {
  Conversation out;
  for (const ChatMessage& message : messages) {
    out.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  out.unix_time = std::time(nullptr);
  const auto now = static_cast<time_t>(out.unix_time);
  std::tm local = {};
  if (localtime_r(&now, &local) != nullptr) out.utc_offset_seconds = local.tm_gmtoff;
  return out;
}

}  // namespace winnow::chat
