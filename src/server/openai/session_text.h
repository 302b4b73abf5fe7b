#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "server/openai/prompts.h"

// Text that continues a session. A session reads its text once; requests that name it continue it.
// If the text is a document, they are questions about it.
namespace winnow::server {

// The beginning of a prompt that asks about a document, up to the document's last word. `system`
// may be empty. Errors: those of the template, an empty document.
Result<Tokens> DocumentPrompt(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer, const std::string& system,
                              const std::string& document);

// Sets `tokens` to the whole prompt of a conversation in a session that has read `read`. `unread`
// is the last token of an answer that was cut short, which follows it.
//   - If the conversation begins with the text of `read`, it is the prompt.
//   - If the session has a `document`, the beginning of `read` (empty: none is known), the user's
//   first
//     message continues the document's turn.
//   - If its messages up to the last answer are what the session has said, but not letter by letter
//     (templates trim texts and leave out reasoning), those after it are new turns.
//   - Without answers all messages are new turns after `read` and `unread`.
// Errors: those of the template; answers that are not the session's last.
struct SessionTurn {
  std::span<const tokenizer::TokenId> read;
  std::span<const tokenizer::TokenId> unread;
  std::span<const tokenizer::TokenId> document;
};
Result<chat::Prompt> WriteTurn(const chat::PromptWriter& writer,
                               const tokenizer::Tokenizer& tokenizer,
                               const chat::Conversation& conversation, const SessionTurn& session,
                               Tokens& tokens);

// Whether `read` is a document without a question yet: a user turn that has not ended. For sessions
// saved by another process, of which only the tokens are known.
bool IsOpenDocument(const chat::PromptWriter& writer, const tokenizer::Tokenizer& tokenizer,
                    std::span<const tokenizer::TokenId> read);

bool BeginsWith(std::span<const tokenizer::TokenId> tokens,
                std::span<const tokenizer::TokenId> beginning);

}  // namespace winnow::server
