#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "tokenizer/chat_template.h"

namespace winnow::chat {

// These messages now, for a writer: the answer comes next.
Conversation ConversationNow(std::span<const tokenizer::ChatMessage> messages);

// A message that asks a question about a document, as the two parts of a prompt: what is the same
// for every question, and what follows it. Joined they are the whole prompt.
struct DocumentPrompt {
  std::vector<tokenizer::MarkedText> document;
  std::vector<tokenizer::MarkedText> question;
  std::string warning = {};  // not empty: why a built-in format stands in for the template
};
// `system` may be empty. Errors: those of the template, an empty document.
Result<DocumentPrompt> DocumentQuestion(const tokenizer::ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question);

// The same by the model's own template, where it writes the document as it is; by a built-in format
// where it does not. Errors: those of the writer, an empty document.
Result<DocumentPrompt> DocumentQuestion(const PromptWriter& writer, const std::string& system,
                                        const std::string& document, const std::string& question);

}  // namespace winnow::chat
