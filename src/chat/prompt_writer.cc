#include "chat/prompt_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/trim.h"
#include "chat/message.h"

namespace winnow::chat {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::ChatTemplate;
using tokenizer::MarkedText;

// Roles that may be part of a control token: templates often write '<|' + role + '|>'. With other
// roles that stays text.
constexpr std::array<std::string_view, 8> kRoles = {
    "system", "user", "assistant", "tool", "developer", "ipython", "function", "observation"};

// Memory that a client can occupy for a moment; a conversation of 10 MB needs a third of it.
constexpr size_t kMaxWorkBytes = size_t{256} << 20;

bool IsTrusted(std::span<const std::string_view> path, std::string_view value) {
  if (path.size() == 1) return path[0] == "bos_token" || path[0] == "eos_token";
  return path.size() == 3 && path[0] == "messages" && path[2] == "role" &&
         std::find(kRoles.begin(), kRoles.end(), value) != kRoles.end();
}

std::string Where(size_t i) { return "messages[" + std::to_string(i) + "]"; }

// Converts the arguments of calls to the template's form; clients send JSON text. Errors: those of
// ParsedArguments.
Result<void> ShapeCalls(Json* message, bool wants_text) {
  if (!message->contains("tool_calls") || !(*message)["tool_calls"].is_array()) return {};
  for (Json& call : (*message)["tool_calls"]) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    Json& function = call["function"];
    if (!function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (wants_text && !arguments.is_string()) {
      arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else if (!wants_text && arguments.is_string()) {
      WINNOW_ASSIGN(arguments, ParsedArguments(arguments.get_ref<const std::string&>()));
    }
  }
  return {};
}

// The messages in the form that this template takes.
Result<Json> ShapedMessages(const Json& messages, const TemplateTraits& traits) {
  if (!messages.is_array() || messages.empty()) {
    return Error{"messages: expected an array with at least one message"};
  }
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      return Error{Where(i) + ": expected an object with a role"};
    }
    if (message["role"] == "developer" && !traits.takes_developer) message["role"] = "system";
    if (!message.contains("content")) message["content"] = nullptr;
    Json& content = message["content"];
    if (content.is_array()) {
      WINNOW_ASSIGN(std::string text, JoinedParts(content, Where(i)));
      if (!traits.wants_parts) content = std::move(text);
    } else if (content.is_string()) {
      if (traits.wants_parts) {
        content = Json::array({{{"type", "text"}, {"text", content.get<std::string>()}}});
      }
    } else if (!content.is_null()) {
      return Error{Where(i) + ".content: expected a string, an array of parts or null"};
    }
    if (const auto shaped = ShapeCalls(&message, traits.wants_argument_text); !shaped) {
      return Error{Where(i) + "." + shaped.error().message};
    }
    out.push_back(std::move(message));
  }
  if (out[0]["role"] != "system") return out;
  if (traits.takes_system && !traits.takes_lone_system && out.size() == 1) {
    return Error{
        "messages[0]: the template writes a system message only together with a user's, expected a "
        "message of the user next"};
  }
  if (traits.takes_system) return out;
  // Move the system message to the front of the first user message.
  if (out.size() == 1) {
    out[0]["role"] = "user";
    return out;
  }
  const auto text_of = [](const Json& message) {
    const Json& content = message["content"];
    if (content.is_array()) return content.empty() ? "" : content[0]["text"].get<std::string>();
    return content.is_string() ? content.get<std::string>() : std::string();
  };
  const std::string system = text_of(out[0]);
  out.erase(0);
  if (out[0]["role"] == "user") {
    const std::string text = system + "\n\n" + text_of(out[0]);
    if (out[0]["content"].is_array()) {
      out[0]["content"] = Json::array({{{"type", "text"}, {"text", text}}});
    } else {
      out[0]["content"] = text;
    }
  }
  return out;
}

// Cuts the text after the last occurrence of `content` outside of the template's own words.
bool CutBehind(std::string_view content, std::vector<MarkedText>* text) {
  if (content.empty()) return false;
  for (size_t i = text->size(); i-- > 0;) {
    if ((*text)[i].parse_special) continue;
    const size_t at = (*text)[i].text.rfind(content);
    if (at == std::string::npos) continue;
    (*text)[i].text.resize(at + content.size());
    text->resize(i + 1);
    return true;
  }
  return false;
}

}  // namespace

bool IsTemplateSource(std::string_view text) {
  return text.find("{{") != std::string_view::npos || text.find("{%") != std::string_view::npos;
}

std::string Prompt::Text() const {
  std::string out;
  for (const MarkedText& stretch : text) out += stretch.text;
  return out;
}

Result<void> PromptWriter::UseSource(std::string source) {
  WINNOW_ASSIGN(jinja::Template parsed, jinja::Template::Parse(source));
  traits_ = DetectTraits(parsed, special_);
  tool_format_ = DetectToolFormat(source);
  template_ = std::move(parsed);
  source_ = std::move(source);
  return {};
}

Result<PromptWriter> PromptWriter::Make(const gguf::File& file,
                                        const tokenizer::Tokenizer& tokenizer,
                                        const WriterOptions& options) {
  SpecialTexts special;
  if (const auto bos = tokenizer.bos()) special.bos = tokenizer.Text(*bos);
  if (const auto eos = tokenizer.eos()) special.eos = tokenizer.Text(*eos);
  WINNOW_ASSIGN(const auto own, file.String("tokenizer.chat_template"));
  WINNOW_ASSIGN(const auto detected, tokenizer::DetectChatTemplate(own.value_or("")));
  PromptWriter writer(detected.chat_template, std::move(special));
  const bool given_source = !options.source.empty() || IsTemplateSource(options.built_in);
  if (given_source) {
    const auto used = writer.UseSource(options.source.empty() ? options.built_in : options.source);
    if (!used) return Error{"the chat template: " + used.error().message};
    writer.from_user_ = true;
    return writer;
  }
  if (!options.built_in.empty()) {
    WINNOW_ASSIGN(writer.built_in_, ChatTemplate::ByName(options.built_in));
    return writer;
  }
  if (options.jinja && own && !own->empty()) {
    const auto used = writer.UseSource(std::string(*own));
    if (used) return writer;
    writer.warnings_.push_back("the model's chat template cannot be used (" + used.error().message +
                               "): the built-in format " + std::string(writer.built_in_.name()) +
                               " is used instead");
  }
  if (!detected.warning.empty()) writer.warnings_.push_back(detected.warning);
  return writer;
}

std::string_view PromptWriter::name() const { return template_ ? "jinja" : built_in_.name(); }

Result<std::vector<MarkedText>> PromptWriter::Render(const Conversation& conversation) const {
  WINNOW_ASSIGN(Json messages, ShapedMessages(conversation.messages, traits_));
  Json context = Json::object();
  if (conversation.variables.is_object()) context = conversation.variables;
  context["messages"] = std::move(messages);
  // Templates for transformers may rely on these two being defined.
  context["tools"] = nullptr;
  if (!context.contains("documents")) context["documents"] = nullptr;
  if (conversation.tools.is_array() && !conversation.tools.empty()) {
    context["tools"] = conversation.tools;
  }
  context["add_generation_prompt"] =
      conversation.add_generation_prompt && !conversation.continue_final_message;
  context["bos_token"] = special_.bos;
  context["eos_token"] = special_.eos;
  const jinja::RenderOptions options = {.trusted = &IsTrusted,
                                        .unix_time = conversation.unix_time,
                                        .utc_offset_seconds = conversation.utc_offset_seconds,
                                        .limits = {.max_work_bytes = kMaxWorkBytes}};
  WINNOW_ASSIGN(const auto segments, template_->Render(context, options));
  std::vector<MarkedText> text;
  text.reserve(segments.size());
  for (const jinja::Segment& segment : segments) text.push_back({segment.text, segment.trusted});
  return text;
}

Result<std::vector<MarkedText>> PromptWriter::WriteBuiltIn(const Conversation& conversation) const {
  WINNOW_ASSIGN(const Json messages,
                ShapedMessages(conversation.messages, {.takes_developer = false}));
  std::vector<tokenizer::ChatMessage> out;
  for (size_t i = 0; i < messages.size(); ++i) {
    std::string role = messages[i]["role"].get<std::string>();
    if (messages[i].contains("tool_calls") && !messages[i]["tool_calls"].empty()) {
      return Error{Where(i) + ".tool_calls: the chat format " + std::string(built_in_.name()) +
                   " does not support tools"};
    }
    const Json& content = messages[i]["content"];
    out.push_back({std::move(role), content.is_string() ? content.get<std::string>() : ""});
  }
  const bool open = conversation.add_generation_prompt || conversation.continue_final_message;
  return built_in_.Format(out, open);
}

Result<Prompt> PromptWriter::Write(const Conversation& conversation) const {
  const bool has_tools = conversation.tools.is_array() && !conversation.tools.empty();
  if (has_tools && !takes_tools()) {
    return Error{"tools: the model's chat template does not support tools"};
  }
  if (conversation.continue_final_message &&
      (!conversation.messages.is_array() || conversation.messages.empty() ||
       !conversation.messages.back().is_object() ||
       conversation.messages.back().value("role", Json()) != "assistant")) {
    return Error{"messages: the last one is to be continued, expected an assistant message"};
  }
  Prompt prompt;
  if (template_) {
    auto text = Render(conversation);
    if (text) {
      prompt.text = *std::move(text);
      if (!conversation.continue_final_message) return prompt;
      WINNOW_ASSIGN(const Json shaped, ShapedMessages(conversation.messages, {}));
      const Json& last = shaped.back()["content"];
      const std::string content = last.is_string() ? last.get<std::string>() : "";
      if (CutBehind(content, &prompt.text) || CutBehind(Trimmed(content), &prompt.text)) {
        return prompt;
      }
      return Error{
          "messages: the template changes the text of the last message, so it cannot be "
          "continued"};
    }
    // A refusal by the template concerns the messages, and a built-in format knows no tools.
    // Falling back would only hide the error.
    const bool refused = text.error().message.starts_with("the template refuses: ") ||
                         text.error().message.starts_with("messages");
    if (from_user_ || refused || has_tools) return text.error();
    prompt.warning = "the model's chat template failed (" + text.error().message +
                     "): the built-in format " + std::string(built_in_.name()) + " was used";
  }
  WINNOW_ASSIGN(prompt.text, WriteBuiltIn(conversation));
  return prompt;
}

}  // namespace winnow::chat
