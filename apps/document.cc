#include "document.h"

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

Result<DocumentPrompt> DocumentQuestion(const ChatTemplate& chat_template,
                                        const std::string& system, const std::string& document,
                                        const std::string& question) {
  // Templates may trim what they are given; the cut below needs the text as it comes out.
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = document.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return Error{"the document is empty"};
  const std::string text = document.substr(begin, document.find_last_not_of(kSpaces) + 1 - begin);
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back({"system", system});
  messages.push_back({"user", text + "\n\n" + question});
  WINNOW_ASSIGN(const std::vector<MarkedText> all, chat_template.Format(messages, true));

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
  WINNOW_CHECK(found);
  return prompt;
}

}  // namespace winnow::apps
