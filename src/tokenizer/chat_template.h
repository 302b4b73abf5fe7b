#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace winnow::tokenizer {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;

  bool operator==(const ChatMessage&) const = default;
};

struct ChatFormat;  // one line of the table in chat_formats.cc

// Renders a conversation in a built-in format. A small value.
class ChatTemplate {
 public:
  // Errors: an unknown name; the message lists the known ones.
  static Result<ChatTemplate> ByName(std::string_view name);
  static ChatTemplate ChatMl();

  std::string_view name() const;

  // Renders the conversation as text: the template's markup is marked parse_special, the contents
  // are not. Concatenated it is the prompt, without BOS, which EncodeMarked adds. With
  // `add_generation_prompt` the prompt ends where the response begins; if the last message is the
  // assistant's, its turn is left open to be continued. Errors: a role other than the three above;
  // a system message that is not the first.
  Result<std::vector<MarkedText>> Format(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const;

 private:
  explicit ChatTemplate(const ChatFormat* format) : format_(format) {}
  const ChatFormat* format_;
};

// Names of all built-in formats, sorted.
std::vector<std::string_view> ChatTemplateNames();

struct ChatTemplateChoice {
  ChatTemplate chat_template;
  std::string warning;  // not empty: tell the user that the format may not suit the model
};

// Recognizes the built-in format that a model's own template writes (Jinja source; may be empty) by
// strings that only this template contains. If none is recognized: ChatML, with a warning. Errors:
// a source of more than kMaxChatTemplateBytes.
inline constexpr size_t kMaxChatTemplateBytes = size_t{1} << 20;
Result<ChatTemplateChoice> DetectChatTemplate(std::string_view source);

}  // namespace winnow::tokenizer
