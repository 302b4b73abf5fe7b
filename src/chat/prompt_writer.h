#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/template_traits.h"
#include "chat/tool_format.h"
#include "gguf/file.h"
#include "jinja/template.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

// Renders conversations with the model's own Jinja template or a built-in format.
namespace winnow::chat {

// Whether the value of --chat-template is a Jinja source: it contains "{{" or "{%".
bool IsTemplateSource(std::string_view text);

struct Conversation {
  // As in OpenAI's API: objects with role, content (a string, parts of text, or null), tool_calls,
  // tool_call_id, name, reasoning_content.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;      // OpenAI's array, or null
  nlohmann::ordered_json variables = nullptr;  // further variables of the template, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is the assistant's and is continued
  int64_t unix_time = 0;                // for templates that print the date
  int64_t utc_offset_seconds = 0;
};

struct Prompt {
  // For Tokenizer::EncodeMarked, so that text from a client never becomes a control token.
  std::vector<tokenizer::MarkedText> text;
  // Not empty: the model's own template failed, and a built-in format was used.
  std::string warning;

  std::string Text() const;  // joined
};

struct WriterOptions {
  // --chat-template: the name of a built-in format, or a Jinja source (IsTemplateSource).
  std::string built_in = {};
  std::string source = {};  // --chat-template-file: a Jinja source
  bool jinja = true;        // false: built-in formats only
};

// Immutable and thread-safe.
class PromptWriter {
 public:
  // `file` is the model's. Errors: an unknown name, a source in `options` that is not a valid
  // template.
  static Result<PromptWriter> Make(const gguf::File& file, const tokenizer::Tokenizer& tokenizer,
                                   const WriterOptions& options);

  // Errors: invalid messages (named by index), content that is not text, refusals of the template
  // (in its words), tools if the template takes none, a limit on rendering. If a model's own
  // template fails in other ways, a built-in format replaces it.
  Result<Prompt> Write(const Conversation& conversation) const;

  std::string_view name() const;  // "jinja", or the built-in format's
  // Used if there is no template, or if it fails.
  const tokenizer::ChatTemplate& built_in() const { return built_in_; }
  const std::string& source() const { return source_; }  // empty: a built-in format
  const std::vector<std::string>& warnings() const { return warnings_; }  // to be shown once
  bool takes_tools() const { return template_.has_value() && traits_.takes_tools; }
  ToolFormat tool_format() const { return takes_tools() ? tool_format_ : ToolFormat::kNone; }
  const TemplateTraits& traits() const { return traits_; }

 private:
  PromptWriter(tokenizer::ChatTemplate built_in, SpecialTexts special)
      : built_in_(built_in), special_(std::move(special)) {}
  Result<void> UseSource(std::string source);
  Result<std::vector<tokenizer::MarkedText>> Render(const Conversation& conversation) const;
  Result<std::vector<tokenizer::MarkedText>> WriteBuiltIn(const Conversation& conversation) const;

  tokenizer::ChatTemplate built_in_;
  SpecialTexts special_;
  std::optional<jinja::Template> template_;
  bool from_user_ = false;  // the template; then no built-in format replaces it
  std::string source_;
  TemplateTraits traits_;
  ToolFormat tool_format_ = ToolFormat::kNone;
  std::vector<std::string> warnings_;
};

}  // namespace winnow::chat
