#include "server/openai/history.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/trim.h"
#include "chat/answer_parser.h"
#include "chat/message.h"

namespace winnow::server {
namespace {

using nlohmann::ordered_json;

constexpr size_t kBeginning = 2;  // hashes of what begins a session (HashMessages)

// The value of a field that is a text; else empty.
std::string TextField(const ordered_json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool HasRole(const ordered_json& message, std::string_view role) {
  return TextField(message, "role") == role;
}

bool HasSystem(std::span<const ordered_json> messages) {
  return !messages.empty() &&
         (HasRole(messages.front(), "system") || HasRole(messages.front(), "developer"));
}

// Without the reasoning that some clients leave in the text of an answer.
std::string SaidText(const ordered_json& message) {
  std::string text = chat::ContentText(message);
  if (HasRole(message, "assistant")) {
    chat::AnswerParser parser{chat::AnswerOptions()};
    text = parser.Push(text).content;
    text += parser.Finish().content;
  }
  return std::string(Trimmed(text));
}

// The same for values that mean the same: names sorted, whole numbers as integers.
nlohmann::json Canonical(const ordered_json& value) {
  if (value.is_object()) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& [name, member] : value.items()) object[name] = Canonical(member);
    return object;
  }
  if (value.is_array()) {
    nlohmann::json array = nlohmann::json::array();
    for (const ordered_json& element : value) array.push_back(Canonical(element));
    return array;
  }
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    constexpr double kExact = 9007199254740992;  // 2^53
    if (number == std::trunc(number) && std::abs(number) <= kExact) {
      return static_cast<int64_t>(number);
    }
  }
  return value;
}

// Its calls, each with its name and arguments; null: none.
ordered_json Calls(const ordered_json& message) {
  ordered_json calls;
  const auto list = message.find("tool_calls");
  if (list == message.end() || !list->is_array()) return calls;
  for (const ordered_json& call : *list) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    ordered_json known = arguments == function->end() ? ordered_json() : *arguments;
    if (known.is_string()) {
      auto parsed = chat::ParsedArguments(known.get_ref<const std::string&>());
      if (parsed) known = *std::move(parsed);
    }
    calls.push_back({TextField(*function, "name"), Canonical(known)});
  }
  return calls;
}

std::string Written(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Never 0, which stands for nothing.
uint64_t HashText(const std::string& text) {
  return std::max<uint64_t>(XXH3_64bits(text.data(), text.size()), 1);
}

uint64_t HashMessage(const ordered_json& message) {
  return HashText(Written({TextField(message, "role"), SaidText(message), Calls(message)}));
}

// Whether a client that saw `answer`, or its beginning if it was `cut`, has `message`.
bool IsAnswer(const ordered_json& message, const ordered_json& answer, bool cut) {
  if (HashMessage(message) == HashMessage(answer)) return true;
  const ordered_json calls = Calls(message);
  const std::string text = SaidText(message);
  if (!calls.is_null())
    return text.empty() && calls == Calls(answer);  // clients leave the text out
  return cut && SaidText(answer).starts_with(text);
}

Error AnotherHistory() {
  return Error{
      "found answers that are not the session's last: expected the session's whole conversation, "
      "unchanged, or only the messages that follow it"};
}

}  // namespace

SentMessages MessagesInRequest(const chat::Conversation& conversation) {
  return {.messages = conversation.messages.get_ref<const ordered_json::array_t&>(),
          .tools = conversation.tools,
          .continues_last = conversation.continue_final_message};
}

std::vector<uint64_t> HashMessages(const SentMessages& sent) {
  const std::span messages = sent.complete();
  const size_t n_system = HasSystem(messages) ? 1 : 0;
  std::vector<uint64_t> hashes = {n_system > 0 ? HashMessage(messages.front()) : 0,
                                  sent.tools.is_null() ? 0 : HashText(Written(sent.tools))};
  for (const ordered_json& message : messages.subspan(n_system)) {
    hashes.push_back(HashMessage(message));
  }
  return hashes;
}

Result<std::vector<uint64_t>> HashMessages(const SentMessages& sent,
                                           const runtime::SessionTokens& session) {
  std::vector<uint64_t> hashes = HashMessages(sent);
  std::vector<uint64_t> known = session.outline.messages;
  known.resize(std::max(known.size(), kBeginning));  // unknown: neither
  for (size_t i = 0; i < kBeginning; ++i) {
    if (hashes[i] != 0 && hashes[i] != known[i]) {
      return Error{std::string("found ") + (i == 0 ? "a system message" : "tools") +
                   " that the session did not begin with: expected the same, or none"};
    }
    hashes[i] = known[i];
  }
  return hashes;
}

std::set<tokenizer::TokenId> MarkerTokens(const tokenizer::Tokenizer& tokenizer,
                                          chat::ToolFormat tools) {
  std::set<tokenizer::TokenId> tokens;
  for (const std::string_view marker : chat::ToolMarkers(tools)) {
    if (const auto token = tokenizer.Find(marker)) tokens.insert(*token);
  }
  return tokens;
}

ordered_json LastAnswer(const tokenizer::Tokenizer& tokenizer,
                        const runtime::SessionTokens& session, chat::ToolFormat tools) {
  const runtime::TextOutline& outline = session.outline;
  if (!outline.answer_has_tools) tools = chat::ToolFormat::kNone;
  chat::AnswerParser parser({.tools = tools, .starts_in_reasoning = outline.answer_in_reasoning});
  const std::set<tokenizer::TokenId> markers = MarkerTokens(tokenizer, tools);
  tokenizer::StreamDecoder decoder(tokenizer);
  std::string content;
  ordered_json calls = ordered_json::array();
  const auto take = [&](const chat::AnswerDelta& delta) {
    content += delta.content;
    for (const chat::ToolCallDelta& call : delta.tool_calls) {
      const auto index = static_cast<size_t>(call.index);
      if (index >= calls.size()) {
        calls.push_back({{"function", {{"name", call.name}, {"arguments", ""}}}});
      }
      calls[index]["function"]["arguments"].get_ref<std::string&>() += call.arguments;
    }
  };
  const auto read = [&](std::span<const tokenizer::TokenId> tokens) {
    for (const tokenizer::TokenId token : tokens) {
      std::string text = decoder.Push(token);
      if (markers.contains(token)) text += tokenizer.Piece(token, /*render_special=*/true);
      take(parser.Push(text));
    }
  };
  const std::span all = session.tokens;
  read(all.subspan(std::min(static_cast<size_t>(outline.answer_begins), all.size())));
  read(session.unread);
  take(parser.Push(decoder.Finish()));
  take(parser.Finish());
  ordered_json answer = {{"role", "assistant"}, {"content", content}};
  if (!calls.empty()) answer["tool_calls"] = std::move(calls);
  return answer;
}

Result<NewMessages> FindNewMessages(const SentMessages& sent, const tokenizer::Tokenizer& tokenizer,
                                    const runtime::SessionTokens& session, chat::ToolFormat tools) {
  const std::span messages = sent.messages;
  const size_t n_system = HasSystem(messages) ? 1 : 0;
  const auto is_answer = [](const ordered_json& message) { return HasRole(message, "assistant"); };
  WINNOW_ASSIGN(std::vector<uint64_t> said, HashMessages(sent, session));
  const std::vector<uint64_t>& known = session.outline.messages;
  const size_t n_known = n_system + std::max(known.size(), kBeginning) - kBeginning;
  const bool has_answer = session.outline.answer_begins >= 0;
  const bool begins_with_known = known.size() > kBeginning && messages.size() > n_known &&
                                 said.size() >= known.size() &&
                                 std::equal(known.begin(), known.end(), said.begin());
  if (begins_with_known && !has_answer) {
    return NewMessages{.first = n_known, .said = std::move(said)};
  }
  if (begins_with_known && is_answer(messages[n_known])) {
    const bool is_continued = sent.continues_last && messages.size() == n_known + 1;
    const bool cut = !session.ended && !is_continued;
    const ordered_json answer = LastAnswer(tokenizer, session, tools);
    if (!IsAnswer(messages[n_known], answer, cut)) return AnotherHistory();
    return NewMessages{.first = n_known + 1, .said = std::move(said)};
  }
  if (std::ranges::any_of(sent.complete(), is_answer)) return AnotherHistory();
  if (known.empty()) return NewMessages{.first = n_system, .said = std::move(said)};
  NewMessages found = {.first = n_system, .said = known};
  if (has_answer) found.said.push_back(HashMessage(LastAnswer(tokenizer, session, tools)));
  found.said.insert(found.said.end(), said.begin() + kBeginning, said.end());
  return found;
}

}  // namespace winnow::server
