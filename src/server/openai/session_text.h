#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "server/openai/prompts.h"

// What follows the text of a session. A session reads its text once; requests that name it continue
// that text, as a conversation about it where it is a document.
namespace winnow::server {

// The beginning of a prompt that asks about a document: all up to the document's last word.
// `system` may be empty. Errors: those of the template, an empty document.
Result<Tokens> DocumentPrompt(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer, const std::string& system,
                              const std::string& document);

// The whole prompt of a conversation in a session whose text is `read`, and then `unread`: the last
// token of an answer that was cut short.
//   - The conversation begins with what was read: as it is.
//   - It is about `document`, the beginning of `read` (empty: none is known): the document's turn
//     goes on with the first message of the user.
//   - Otherwise its messages are new turns after what was read.
// Errors: those of the template.
struct SessionTurn {
  std::span<const tokenizer::TokenId> read;
  std::span<const tokenizer::TokenId> unread;
  std::span<const tokenizer::TokenId> document;
};
Result<chat::Prompt> WriteTurn(const chat::PromptWriter& writer,
                               const tokenizer::Tokenizer& tokenizer,
                               const chat::Conversation& conversation, const SessionTurn& session,
                               Tokens& tokens);

// Whether what a session has read, of which nothing else is known (it was saved by another
// process), is a document that nobody has asked about yet: a turn of the user that has not ended.
bool IsOpenDocument(const chat::PromptWriter& writer, const tokenizer::Tokenizer& tokenizer,
                    std::span<const tokenizer::TokenId> read);

bool BeginsWith(std::span<const tokenizer::TokenId> tokens,
                std::span<const tokenizer::TokenId> beginning);

}  // namespace winnow::server
