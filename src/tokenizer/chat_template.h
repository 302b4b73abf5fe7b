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

// How a conversation is written down for a model. A small value; the formats are built in.
class ChatTemplate {
 public:
  // Errors: an unknown name; the message lists the known ones.
  static Result<ChatTemplate> ByName(std::string_view name);
  static ChatTemplate ChatMl();

  std::string_view name() const;

  // The conversation as text: the template's own words marked parse_special, the contents not.
  // Joined, it is the prompt; the model's BOS is left to EncodeMarked. With `add_generation_prompt`
  // it ends where the assistant's answer begins, or goes on: if the last message is the
  // assistant's, its turn is left open. Errors: a role other than the three above; a system message
  // that is not the first.
  Result<std::vector<MarkedText>> Format(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const;

 private:
  explicit ChatTemplate(const ChatFormat* format) : format_(format) {}
  const ChatFormat* format_;
};

// All built-in names, sorted.
std::vector<std::string_view> ChatTemplateNames();

struct ChatTemplateChoice {
  ChatTemplate chat_template;
  std::string warning;  // not empty: show it to the user, the model may be spoken to in a format it
                        // does not know
};

// Which built-in format a model's own template (Jinja source; may be empty) writes, by strings that
// only it contains. None recognised: ChatML, with a warning. Errors: a source of more than
// kMaxChatTemplateBytes.
inline constexpr size_t kMaxChatTemplateBytes = size_t{1} << 20;
Result<ChatTemplateChoice> DetectChatTemplate(std::string_view source);

}  // namespace winnow::tokenizer
