#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "chat/prompt_writer.h"
#include "gguf/file.h"
#include "runtime/session.h"
#include "tokenizer/chat_template.h"

namespace winnow::apps {

// The chat template of that name, or the one the model's file describes (a guess is told to the
// log). Errors: unknown name, an unreadable template.
Result<tokenizer::ChatTemplate> ChooseTemplate(const std::string& name, const gguf::File& file,
                                               Log& log);

// A message that asks a question about a document, as the two parts of a prompt: what is the same
// for every question, and what follows it. Joined they are the whole prompt.
struct DocumentPrompt {
  std::vector<tokenizer::MarkedText> document;
  std::vector<tokenizer::MarkedText> question;
};
// `system` may be empty. Errors: those of the template, an empty document.
Result<DocumentPrompt> DocumentQuestion(const tokenizer::ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question);

// The same by the model's own template, where it writes the document as it is; by a built-in format
// where it does not. Errors: those of the writer, an empty document.
Result<DocumentPrompt> DocumentQuestion(const chat::PromptWriter& writer, const std::string& system,
                                        const std::string& document, const std::string& question);

// Error for a text of more than 8 MiB that is too long for the session's context whatever its
// tokens are: finding these would take long and fill the memory.
Result<void> CheckTextSize(const runtime::Session& session, std::string_view text);

// These messages now, for a writer: the answer comes next.
chat::Conversation ConversationFrom(const std::vector<tokenizer::ChatMessage>& messages);

}  // namespace winnow::apps
