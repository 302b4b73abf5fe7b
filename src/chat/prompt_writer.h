#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/answer_parser.h"
#include "gguf/file.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::chat {

struct Conversation {
  nlohmann::ordered_json messages;   // OpenAI's list
  nlohmann::ordered_json tools;      // OpenAI's list, or null
  nlohmann::ordered_json variables;  // object or null: chat_template_kwargs
  bool add_generation_prompt = true;
  bool continue_final_message =
      false;              // the last message is the assistant's, its turn is left open
  int64_t unix_time = 0;  // for templates that write the date
  int64_t utc_offset_seconds = 0;
};

struct Prompt {
  std::vector<tokenizer::MarkedText> text;
  std::string warning;
  std::string Text() const;  // joined
};

struct WriterOptions {
  std::string built_in = {};  // --chat-template
  std::string source = {};    // --chat-template-file
  bool jinja = true;
};

// Writes conversations for a model. Immutable, thread-safe.
class PromptWriter {
 public:
  static Result<PromptWriter> Make(const gguf::File& file, const tokenizer::Tokenizer& tokenizer,
                                   const WriterOptions& options);

  // Errors (of the client): a message without role, a role the format refuses, tools, content that
  // is no text.
  Result<Prompt> Write(const Conversation& conversation) const;

  std::string_view name() const { return template_.name(); }
  std::string_view source() const { return {}; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool takes_tools() const { return false; }
  ToolFormat tool_format() const { return ToolFormat::kNone; }

 private:
  PromptWriter(tokenizer::ChatTemplate format, std::vector<std::string> warnings)
      : template_(format), warnings_(std::move(warnings)) {}

  tokenizer::ChatTemplate template_;
  std::vector<std::string> warnings_;
};

}  // namespace winnow::chat
