#include "server/openai/session_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/begins_with.h"
#include "base/trim.h"
#include "chat/message.h"
#include "server/openai/history.h"

namespace winnow::server {
namespace {

using nlohmann::ordered_json;
using tokenizer::MarkedText;

// Marks where a prompt is cut. No template and no user writes it.
constexpr const char* kMark = "\x02winnow-cut\x03";

struct Halves {
  std::vector<MarkedText> before, after;
};

// Splits a rendered prompt at the mark. Error: the template dropped the mark.
Result<Halves> CutAtMark(const std::vector<MarkedText>& text) {
  const std::string_view mark = kMark;
  Halves halves;
  bool found = false;
  for (const MarkedText& stretch : text) {
    const size_t at = found ? std::string::npos : stretch.text.find(mark);
    if (at == std::string::npos) {
      (found ? halves.after : halves.before).push_back(stretch);
      continue;
    }
    found = true;
    halves.before.push_back({stretch.text.substr(0, at), stretch.parse_special});
    halves.after.push_back({stretch.text.substr(at + mark.size()), stretch.parse_special});
  }
  if (!found)
    return Error{"the chat template changes the text of user messages; sessions need it unchanged"};
  return halves;
}

// Inserts `text` before the content of a message, which is a text or a list of parts.
void PutBefore(const std::string& text, ordered_json& message) {
  ordered_json& content = message["content"];
  if (content.is_array()) {
    content.insert(content.begin(), ordered_json{{"type", "text"}, {"text", text}});
  } else {
    content = text + (content.is_string() ? content.get<std::string>() : "");
  }
}

// The part of the prompt after the document, if the user's first message asks about it.
Result<chat::Prompt> AfterDocument(const chat::PromptWriter& writer,
                                   const chat::Conversation& conversation) {
  chat::Conversation marked = conversation;
  bool found = false;
  for (auto& message : marked.messages) {
    if (found || message.value("role", "") != "user") continue;
    PutBefore(std::string(kMark) + "\n\n", message);
    found = true;
  }
  if (!found) return Error{"messages: expected a user message with a question about the document"};
  WINNOW_ASSIGN(chat::Prompt prompt, writer.Write(marked));
  WINNOW_ASSIGN(Halves halves, CutAtMark(prompt.text));
  prompt.text = std::move(halves.after);
  return prompt;
}

// The end of an answer and the messages after it.
Result<chat::Prompt> AfterAnswer(const chat::PromptWriter& writer,
                                 const chat::Conversation& conversation) {
  chat::Conversation marked = conversation;
  marked.messages = ordered_json::array();
  marked.messages.push_back({{"role", "user"}, {"content", "?"}});
  marked.messages.push_back({{"role", "assistant"}, {"content", kMark}});
  for (const auto& message : conversation.messages) marked.messages.push_back(message);
  WINNOW_ASSIGN(chat::Prompt prompt, writer.Write(marked));
  WINNOW_ASSIGN(Halves halves, CutAtMark(prompt.text));
  prompt.text = std::move(halves.after);
  return prompt;
}

// What the template writes after an answer that nothing follows.
std::vector<MarkedText> TurnEnd(const chat::PromptWriter& writer, const ordered_json& variables) {
  chat::Conversation marked = {.variables = variables, .add_generation_prompt = false};
  marked.messages = ordered_json::array(
      {{{"role", "user"}, {"content", "?"}}, {{"role", "assistant"}, {"content", kMark}}});
  const auto prompt = writer.Write(marked);
  auto halves = prompt ? CutAtMark(prompt->text) : Result<Halves>(prompt.error());
  return halves ? std::move(halves->after) : std::vector<MarkedText>();
}

// The rest of `text` after `read`; nullopt: it does not begin with `read`.
std::optional<std::vector<MarkedText>> RestAfter(std::string_view read,
                                                 const std::vector<MarkedText>& text) {
  std::vector<MarkedText> rest;
  for (const MarkedText& stretch : text) {
    const std::string_view whole = stretch.text;
    const std::string_view same = whole.substr(0, read.size());
    if (!read.starts_with(same)) return std::nullopt;
    read.remove_prefix(same.size());
    if (same.size() < whole.size()) {
      rest.push_back({std::string(whole.substr(same.size())), stretch.parse_special});
    }
  }
  return read.empty() ? std::optional(std::move(rest)) : std::nullopt;
}

// The text of the tokens, without BOS.
std::string DecodedText(const tokenizer::Tokenizer& tokenizer,
                        std::span<const tokenizer::TokenId> read) {
  if (!read.empty() && tokenizer.adds_bos() && tokenizer.bos() == read[0]) read = read.subspan(1);
  return tokenizer.Decode(read, /*render_special=*/true);
}

// `before` and the text that follows it.
Tokens Joined(const tokenizer::Tokenizer& tokenizer, std::span<const tokenizer::TokenId> before,
              const std::vector<MarkedText>& text) {
  if (before.empty()) return tokenizer.EncodeMarked(text);
  Tokens out(before.begin(), before.end());
  const Tokens added = tokenizer.EncodeAfter(before.back(), text);
  out.insert(out.end(), added.begin(), added.end());
  return out;
}

// The number of tokens at the end of a prompt that are the text of the message it continues.
int64_t TokensOfEnd(const tokenizer::Tokenizer& tokenizer, const SessionTurn& turn,
                    const ordered_json& message) {
  const std::string text = chat::ContentText(message);
  const std::string prompt = turn.prompt.Text();
  size_t n_bytes = prompt.ends_with(text) ? text.size() : Trimmed(text).size();
  int64_t n_tokens = 0;
  for (auto token = turn.tokens.rbegin(); token != turn.tokens.rend() && n_bytes > 0; ++token) {
    n_bytes -= std::min(n_bytes, tokenizer.Piece(*token, /*render_special=*/true).size());
    ++n_tokens;
  }
  return n_tokens;
}

// Whether `read` is a document without a question yet: a user turn that has not ended. For sessions
// of which only the text is known, such as those of another program.
bool IsOpenDocument(const chat::PromptWriter& writer, const tokenizer::Tokenizer& tokenizer,
                    const ordered_json& variables, std::span<const tokenizer::TokenId> read) {
  chat::Conversation question = {.variables = variables};
  question.messages.push_back({{"role", "user"}, {"content", kMark}});
  const auto prompt = writer.Write(question);
  if (!prompt) return false;
  const auto halves = CutAtMark(prompt->text);
  if (!halves) return false;
  // The end of the user's turn and the beginning of the answer.
  const std::string turn_end = chat::Prompt{halves->after, {}}.Text();
  const std::string text = tokenizer.Decode(read, /*render_special=*/true);
  if (text.find(turn_end) != std::string::npos) return false;  // a question was asked
  // A turn that ended without an answer ends with a beginning of turn_end.
  for (size_t n = 1; n < turn_end.size(); ++n) {
    const std::string_view beginning(turn_end.data(), n);
    const bool is_blank = Trimmed(beginning).empty();
    if (!is_blank && text.ends_with(beginning)) return false;
  }
  return !text.empty();
}

}  // namespace

Result<Tokens> DocumentPrompt(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer,
                              chat::Conversation conversation, const std::string& document) {
  const std::string text(Trimmed(document));
  if (text.empty()) return Error{"the document is empty"};
  conversation.messages.push_back({{"role", "user"}, {"content", text + kMark}});
  WINNOW_ASSIGN(const chat::Prompt prompt, writer.Write(conversation));
  WINNOW_ASSIGN(const Halves halves, CutAtMark(prompt.text));
  return tokenizer.EncodeMarked(halves.before);
}

Result<SessionTurn> WriteTurn(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer,
                              const chat::Conversation& conversation,
                              const runtime::SessionTokens& session) {
  const SentMessages sent = MessagesInRequest(conversation);
  std::span document =
      std::span(session.tokens)
          .first(std::min(static_cast<size_t>(session.outline.n_document), session.tokens.size()));
  if (document.empty() && session.unread.empty() && session.outline.messages.empty() &&
      IsOpenDocument(writer, tokenizer, conversation.variables, session.tokens)) {
    document = session.tokens;
  }
  SessionTurn turn = {.outline = {.n_document = std::ssize(document)}};
  // Compare texts if the tokens differ: a model may write a word with other tokens than the
  // tokenizer.
  const std::string read = DecodedText(tokenizer, session.tokens);
  const auto goes_on = [&](const std::vector<MarkedText>& text) {
    if (BeginsWith(turn.tokens, session.tokens)) return true;
    const auto rest = RestAfter(read, text);
    if (rest) turn.tokens = Joined(tokenizer, session.tokens, *rest);
    return rest.has_value();
  };
  const auto end = [&] {
    turn.outline.answer_begins =
        std::ssize(turn.tokens) -
        (sent.continues_last ? TokensOfEnd(tokenizer, turn, sent.messages.back()) : 0);
    return std::move(turn);
  };
  if (auto whole = writer.Write(conversation)) {
    turn.prompt = *std::move(whole);
    turn.tokens = tokenizer.EncodeMarked(turn.prompt.text);
    turn.outline.messages = HashMessages(sent);
    if (goes_on(turn.prompt.text)) return end();
  }
  WINNOW_ASSIGN(turn.outline.messages, HashMessages(sent, session));
  if (!document.empty()) {
    WINNOW_ASSIGN(turn.prompt, AfterDocument(writer, conversation));
    turn.tokens = Joined(tokenizer, document, turn.prompt.text);
    std::vector<MarkedText> text = {{DecodedText(tokenizer, document), false}};
    text.insert(text.end(), turn.prompt.text.begin(), turn.prompt.text.end());
    if (goes_on(text)) return end();
  }
  WINNOW_ASSIGN(NewMessages added, FindNewMessages(sent, tokenizer, session, writer.tool_format()));
  turn.outline.messages = std::move(added.said);
  Tokens said = session.tokens;
  said.insert(said.end(), session.unread.begin(), session.unread.end());
  if (added.first == sent.messages.size()) {  // the session's own answer is continued
    if (!sent.continues_last) {
      return Error{"found no message that follows the session's last answer, expected one"};
    }
    turn.prompt = {.text = {{DecodedText(tokenizer, said), false}}, .warning = {}};
    turn.tokens = std::move(said);
    turn.outline = session.outline;
    return turn;
  }
  chat::Conversation turns = conversation;
  turns.messages.erase(turns.messages.begin(),
                       turns.messages.begin() + static_cast<std::ptrdiff_t>(added.first));
  WINNOW_ASSIGN(turn.prompt, AfterAnswer(writer, turns));
  turn.tokens = Joined(tokenizer, said, turn.prompt.text);
  const bool is_known = !session.outline.messages.empty();
  if (is_known && session.outline.answer_begins < 0) {  // there is no answer that could end
    const Tokens ended = Joined(tokenizer, said, TurnEnd(writer, conversation.variables));
    const auto begin = turn.tokens.begin() + std::ssize(said);
    turn.tokens.erase(begin, std::mismatch(begin, turn.tokens.end(),
                                           ended.begin() + std::ssize(said), ended.end())
                                 .first);
  }
  return end();
}

}  // namespace winnow::server
