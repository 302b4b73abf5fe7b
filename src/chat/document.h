#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "tokenizer/chat_template.h"

namespace winnow::chat {

// A conversation of these messages at the current time, to be answered.
Conversation ConversationNow(std::span<const tokenizer::ChatMessage> messages);

// A prompt that asks a question about a document, in two parts: the part that is the same for every
// question, and the rest. Joined they are the whole prompt.
struct DocumentPrompt {
  std::vector<tokenizer::MarkedText> document;
  std::vector<tokenizer::MarkedText> question;
  std::string warning = {};  // not empty: why a built-in format replaces the template
};
// `system` may be empty. Errors: those of the template, an empty document.
Result<DocumentPrompt> DocumentQuestion(const tokenizer::ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question);

// The same with the model's own template, or with a built-in format if the template changes the
// document's text. Errors: those of the writer, an empty document.
Result<DocumentPrompt> DocumentQuestion(const PromptWriter& writer, const std::string& system,
                                        const std::string& document, const std::string& question);

}  // namespace winnow::chat
