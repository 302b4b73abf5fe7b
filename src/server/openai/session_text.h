#pragma once

#include <string>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "runtime/scheduler/scheduler_types.h"
#include "server/openai/prompts.h"

// Text that continues a session. A session reads its text once; requests that name it continue it.
// If the text is a document, they are questions about it.
namespace winnow::server {

// The beginning of a prompt that asks about a document, up to the document's last word.
// `conversation`: what comes before it (a system message, tools). Errors: those of the template, an
// empty document.
Result<Tokens> DocumentPrompt(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer,
                              chat::Conversation conversation, const std::string& document);

// The prompt of a conversation in a session, after what the session has said.
struct SessionTurn {
  chat::Prompt prompt = {};           // of the session's whole text, or of what is new in it
  Tokens tokens = {};                 // of the whole text
  runtime::TextOutline outline = {};  // of it, without the flags of the answer to come
};
//   - If the conversation begins with the session's text, it is the prompt.
//   - If the session has a document, the user's first message continues the document's turn.
//   - Else the messages that the session has not said (FindNewMessages) are new turns.
// Errors: those of the template and of FindNewMessages.
Result<SessionTurn> WriteTurn(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer,
                              const chat::Conversation& conversation,
                              const runtime::SessionTokens& session);

}  // namespace winnow::server
