#include "server/openai/session_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

std::string Trimmed(const std::string& text) {
  constexpr const char* kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
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
  for (const auto& message : conversation.messages) {
    if (message.value("role", "") != "system") marked.messages.push_back(message);
  }
  WINNOW_ASSIGN(chat::Prompt prompt, writer.Write(marked));
  WINNOW_ASSIGN(Halves halves, CutAtMark(prompt.text));
  prompt.text = std::move(halves.after);
  return prompt;
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

// The text of a message: a string, or the texts of its parts.
std::string ContentText(const ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) return text;
  for (const auto& part : *content) {
    if (part.is_object() && part.value("type", "") == "text") text += part.value("text", "");
  }
  return text;
}

// What stands in a message's turn, in this order: its text, then the names of the functions it
// calls. How arguments are written differs between models and templates.
std::vector<std::string> TurnTexts(const ordered_json& message) {
  std::vector<std::string> texts = {Trimmed(ContentText(message))};
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return texts;
  for (const auto& call : *calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    const auto& function = call["function"];
    if (function.is_object()) texts.push_back(function.value("name", ""));
  }
  return texts;
}

// What the template writes between an answer and the next message, trimmed.
std::string TurnSeparator(const chat::PromptWriter& writer) {
  chat::Conversation marked;
  marked.messages = ordered_json::array({{{"role", "user"}, {"content", "?"}},
                                         {{"role", "assistant"}, {"content", kMark}},
                                         {{"role", "user"}, {"content", kMark}}});
  const auto prompt = writer.Write(marked);
  const auto halves = prompt ? CutAtMark(prompt->text) : Result<Halves>(prompt.error());
  if (!halves) return {};
  std::string after;
  for (const MarkedText& stretch : halves->after) after += stretch.text;
  return Trimmed(after.substr(0, after.find(kMark)));
}

// The messages after those that a session has `said`, if the others are its history: their texts
// stand in `said` in the same order, and the last answer at its end. The rendered conversation need
// not begin with `said` for that: templates trim texts and leave out reasoning. nullopt: it is
// another history.
std::optional<ordered_json> NewMessages(const chat::PromptWriter& writer,
                                        const ordered_json& messages, const std::string& said) {
  size_t n_old = 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].value("role", "") == "assistant") n_old = i + 1;
  }
  size_t at = 0;
  for (size_t i = 0; i < n_old; ++i) {
    if (messages[i].value("role", "") == "system") continue;
    const std::vector<std::string> texts = TurnTexts(messages[i]);
    const bool is_last = i + 1 == n_old;
    if (is_last && texts.size() == 1) {
      const std::string end = Trimmed(said.substr(at));
      if (!end.ends_with(texts[0]) || (texts[0].empty() && !end.empty())) return std::nullopt;
      continue;
    }
    for (const std::string& text : texts) {
      const size_t found = said.find(text, at);
      if (found == std::string::npos) return std::nullopt;
      at = found + text.size();
    }
    const std::string separator = is_last ? TurnSeparator(writer) : "";
    if (is_last && (separator.empty() || said.find(separator, at) != std::string::npos)) {
      return std::nullopt;  // the session has gone on after these calls
    }
  }
  ordered_json added = ordered_json::array();
  for (size_t i = n_old; i < messages.size(); ++i) added.push_back(messages[i]);
  return added;
}

// The text of the tokens, without BOS.
std::string DecodedText(const tokenizer::Tokenizer& tokenizer,
                        std::span<const tokenizer::TokenId> read) {
  if (!read.empty() && tokenizer.adds_bos() && tokenizer.bos() == read[0]) read = read.subspan(1);
  return tokenizer.Decode(read, /*render_special=*/true);
}

Tokens Joined(std::span<const tokenizer::TokenId> a, const Tokens& b) {
  Tokens out(a.begin(), a.end());
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

}  // namespace

bool BeginsWith(std::span<const tokenizer::TokenId> tokens,
                std::span<const tokenizer::TokenId> beginning) {
  return tokens.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

bool IsOpenDocument(const chat::PromptWriter& writer, const tokenizer::Tokenizer& tokenizer,
                    std::span<const tokenizer::TokenId> read) {
  chat::Conversation question;
  question.messages = ordered_json::array();
  question.messages.push_back({{"role", "user"}, {"content", kMark}});
  const auto prompt = writer.Write(question);
  if (!prompt) return false;
  const auto halves = CutAtMark(prompt->text);
  if (!halves) return false;
  std::string turn_end;  // the end of the user's turn and the beginning of the answer
  for (const MarkedText& stretch : halves->after) turn_end += stretch.text;
  const std::string text = tokenizer.Decode(read, /*render_special=*/true);
  if (text.find(turn_end) != std::string::npos) return false;  // a question was asked
  // A turn that ended without an answer ends with a beginning of turn_end.
  for (size_t n = 1; n < turn_end.size(); ++n) {
    const std::string_view beginning(turn_end.data(), n);
    const bool is_blank = Trimmed(std::string(beginning)).empty();
    if (!is_blank && text.ends_with(beginning)) return false;
  }
  return !text.empty();
}

Result<Tokens> DocumentPrompt(const chat::PromptWriter& writer,
                              const tokenizer::Tokenizer& tokenizer, const std::string& system,
                              const std::string& document) {
  const std::string text = Trimmed(document);
  if (text.empty()) return Error{"the document is empty"};
  chat::Conversation conversation;
  conversation.messages = ordered_json::array();
  if (!system.empty()) {
    conversation.messages.push_back({{"role", "system"}, {"content", system}});
  }
  conversation.messages.push_back({{"role", "user"}, {"content", text + kMark}});
  WINNOW_ASSIGN(const chat::Prompt prompt, writer.Write(conversation));
  WINNOW_ASSIGN(const Halves halves, CutAtMark(prompt.text));
  return tokenizer.EncodeMarked(halves.before);
}

Result<chat::Prompt> WriteTurn(const chat::PromptWriter& writer,
                               const tokenizer::Tokenizer& tokenizer,
                               const chat::Conversation& conversation, const SessionTurn& session,
                               Tokens& tokens) {
  // Compare texts if the tokens differ: a model may write a word with other tokens than the
  // tokenizer.
  const std::string read = DecodedText(tokenizer, session.read);
  const auto goes_on = [&](const std::vector<MarkedText>& text) {
    if (BeginsWith(tokens, session.read)) return true;
    const auto rest = RestAfter(read, text);
    if (rest) tokens = Joined(session.read, tokenizer.EncodeMarked(*rest, false));
    return rest.has_value();
  };
  if (const auto whole = writer.Write(conversation)) {
    tokens = tokenizer.EncodeMarked(whole->text);
    if (goes_on(whole->text)) return *whole;
  }
  if (!session.document.empty()) {
    WINNOW_ASSIGN(chat::Prompt prompt, AfterDocument(writer, conversation));
    tokens = Joined(session.document, tokenizer.EncodeMarked(prompt.text, /*add_special=*/false));
    std::vector<MarkedText> text = {{DecodedText(tokenizer, session.document), false}};
    text.insert(text.end(), prompt.text.begin(), prompt.text.end());
    if (goes_on(text)) return prompt;
  }
  const Tokens said = Joined(session.read, Tokens(session.unread.begin(), session.unread.end()));
  chat::Conversation turns = conversation;
  const auto is_answer = [](const auto& message) {
    return message.value("role", "") == "assistant";
  };
  if (std::ranges::any_of(conversation.messages, is_answer)) {
    auto added = NewMessages(writer, conversation.messages, DecodedText(tokenizer, said));
    if (!added) {
      return Error{
          "found answers that are not the session's last: expected the session's whole "
          "conversation, unchanged, or only the messages that follow it"};
    }
    turns.messages = std::move(*added);
  }
  WINNOW_ASSIGN(chat::Prompt prompt, AfterAnswer(writer, turns));
  tokens = Joined(said, tokenizer.EncodeMarked(prompt.text, /*add_special=*/false));
  return prompt;
}

}  // namespace winnow::server
