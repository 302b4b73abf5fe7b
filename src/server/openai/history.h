#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "chat/prompt_writer.h"
#include "chat/tool_format.h"
#include "runtime/scheduler/scheduler_types.h"
#include "tokenizer/tokenizer.h"

// Whether the messages of a request are the history of the session that it names. A session knows
// its messages by their hashes (runtime::TextOutline), because its text does not show them exactly:
// templates trim texts, leave out reasoning, and write calls in their own way.
namespace winnow::server {

// The messages of a request, and what belongs to them.
struct SentMessages {
  std::span<const nlohmann::ordered_json> messages;
  const nlohmann::ordered_json& tools;  // OpenAI's array, or null
  bool continues_last = false;          // the last one is an answer that the model is to continue

  std::span<const nlohmann::ordered_json> complete() const {
    return messages.first(messages.size() - (continues_last ? 1 : 0));
  }
};
SentMessages MessagesInRequest(const chat::Conversation& conversation);

// Hashes of the system message and of the tools (each 0 if there is none), which begin a session,
// then of the other complete messages. Of roles, texts without the white space at their ends, and
// calls (names and arguments); not of reasoning and ids.
std::vector<uint64_t> HashMessages(const SentMessages& sent);
// The same in a session: what begins it need not be sent again. Error: another system message than
// the session's, or other tools.
Result<std::vector<uint64_t>> HashMessages(const SentMessages& sent,
                                           const runtime::SessionTokens& session);

// The control tokens that AnswerParser must see (chat::ToolMarkers).
std::set<tokenizer::TokenId> MarkerTokens(const tokenizer::Tokenizer& tokenizer,
                                          chat::ToolFormat tools);

// The last answer of a session, as a message in OpenAI's form. `tools`: how the model writes calls.
// Requires: one was asked for (TextOutline::answer_begins).
nlohmann::ordered_json LastAnswer(const tokenizer::Tokenizer& tokenizer,
                                  const runtime::SessionTokens& session, chat::ToolFormat tools);

struct NewMessages {
  // The index of the first message that the session has not said; their number if the session's own
  // answer is to be continued.
  size_t first = 0;
  std::vector<uint64_t> said = {};  // hashes of all complete messages in the session then
};
// The messages are either the session's whole history and what follows it, or only what follows it.
// Of an answer that was cut short a client may have seen only the beginning. Errors: another
// history, and those of HashMessages.
Result<NewMessages> FindNewMessages(const SentMessages& sent, const tokenizer::Tokenizer& tokenizer,
                                    const runtime::SessionTokens& session, chat::ToolFormat tools);

}  // namespace winnow::server
