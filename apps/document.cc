#include "document.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace winnow::apps {

using tokenizer::ChatMessage;
using tokenizer::ChatTemplate;
using tokenizer::MarkedText;

Result<ChatTemplate> ChooseTemplate(const std::string& name, const gguf::File& file, Log& log) {
  if (!name.empty()) return ChatTemplate::ByName(name);
  WINNOW_ASSIGN(const auto source, file.String("tokenizer.chat_template"));
  WINNOW_ASSIGN(const auto choice, tokenizer::DetectChatTemplate(source.value_or("")));
  if (!choice.warning.empty()) log.Warning(choice.warning);
  return choice.chat_template;
}

namespace {

// Templates may trim what they are given; the cut needs the text as it comes out.
Result<std::string> TrimmedDocument(const std::string& document) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = document.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return Error{"the document is empty"};
  return document.substr(begin, document.find_last_not_of(kSpaces) + 1 - begin);
}

std::vector<ChatMessage> MessagesOn(const std::string& text, const std::string& system,
                                    const std::string& question) {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", text + "\n\n" + question});
  return messages;
}

// A prompt cut behind the document's text; nothing where the text does not stand in it.
std::optional<DocumentPrompt> CutBehind(const std::string& text,
                                        const std::vector<MarkedText>& all) {
  DocumentPrompt prompt;
  bool found = false;
  for (const MarkedText& stretch : all) {
    const size_t at = found || stretch.parse_special ? std::string::npos : stretch.text.find(text);
    if (at == std::string::npos) {
      (found ? prompt.question : prompt.document).push_back(stretch);
      continue;
    }
    found = true;
    prompt.document.push_back({stretch.text.substr(0, at + text.size()), false});
    prompt.question.push_back({stretch.text.substr(at + text.size()), false});
  }
  if (!found) return std::nullopt;
  return prompt;
}

}  // namespace

Result<DocumentPrompt> DocumentQuestion(const ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question) {
  WINNOW_ASSIGN(const std::string text, TrimmedDocument(document));
  WINNOW_ASSIGN(const std::vector<MarkedText> all,
                chat_template.Format(MessagesOn(text, system, question), true));
  std::optional<DocumentPrompt> prompt = CutBehind(text, all);
  WINNOW_CHECK(prompt.has_value());
  return *std::move(prompt);
}

Result<DocumentPrompt> DocumentQuestion(const chat::PromptWriter& writer, const std::string& system,
                                        const std::string& document, const std::string& question) {
  WINNOW_ASSIGN(const std::string text, TrimmedDocument(document));
  WINNOW_ASSIGN(const chat::Prompt written,
                writer.Write(ConversationFrom(MessagesOn(text, system, question))));
  if (auto prompt = CutBehind(text, written.text)) return *std::move(prompt);
  return DocumentQuestion(writer.built_in(), system, document, question);
}

Result<void> CheckTextSize(const runtime::Session& session, std::string_view text) {
  // Up to here the tokens are there at once, and an error can give their number.
  constexpr size_t kQuick = size_t{8} << 20;
  if (text.size() <= kQuick) return {};
  const tokenizer::Tokenizer& tokenizer = session.engine().tokenizer();
  size_t longest = 4;  // bytes of a character that is the unknown token
  for (tokenizer::TokenId token = 0; token < tokenizer.vocabulary_size(); ++token) {
    longest = std::max(longest, tokenizer.Text(token).size());
  }
  const auto at_least = static_cast<int64_t>(text.size() / longest);
  if (at_least <= session.capacity()) return {};
  return Error{"the text is at least " + std::to_string(at_least) + " tokens, the context holds " +
               std::to_string(session.capacity()) +
               "; -c gives it a larger one, and winnow run with --kv-method streaming --kv-size "
               "1024 --prefill-chunk 512 reads a text of any length, of which it keeps the end"};
}

chat::Conversation ConversationFrom(const std::vector<ChatMessage>& messages) {
  chat::Conversation out;
  for (const ChatMessage& message : messages) {
    out.messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  out.unix_time = std::time(nullptr);
  const auto now = static_cast<time_t>(out.unix_time);
  std::tm local = {};
  if (localtime_r(&now, &local) != nullptr) out.utc_offset_seconds = local.tm_gmtoff;
  return out;
}

}  // namespace winnow::apps
