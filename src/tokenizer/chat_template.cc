#include "tokenizer/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/trim.h"
#include "gguf/printable.h"
#include "tokenizer/chat_formats.h"

namespace winnow::tokenizer {
namespace {

const ChatTurn* FindTurn(const ChatFormat& format, std::string_view role) {
  if (role == "system") return &format.system;
  if (role == "user") return &format.user;
  if (role == "assistant") return &format.assistant;
  return nullptr;
}

// Appends text, joined to the last piece if that is of the same kind.
void Append(std::vector<MarkedText>& out, std::string_view text, bool parse_special) {
  if (text.empty()) return;
  if (out.empty() || out.back().parse_special != parse_special) {
    out.push_back({.text = std::string(text), .parse_special = parse_special});
  } else {
    out.back().text += text;
  }
}

std::string Joined(std::span<const std::string_view> names) {
  std::string joined;
  for (std::string_view name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

// A template that contains all of `present` and none of `absent` writes the format `name`.
struct Signature {
  std::string_view name;
  std::vector<std::string_view> present;
  std::vector<std::string_view> absent = {};
};

// The first match counts, so more specific signatures come first.
const std::vector<Signature>& Signatures() {
  static const std::vector<Signature> signatures = {
      {.name = "phi4", .present = {"<|im_start|>", "<|im_sep|>"}},
      {.name = "smolvlm", .present = {"<|im_start|>", "<end_of_utterance>"}},
      {.name = "kimi-k2", .present = {"<|im_assistant|>", "<|im_middle|>"}},
      {.name = "chatml", .present = {"<|im_start|>"}},
      {.name = "mistral-v7", .present = {"[SYSTEM_PROMPT] "}},
      {.name = "mistral-v7-tekken", .present = {"[SYSTEM_PROMPT]"}},
      {.name = "llama2-sys-bos", .present = {"[INST]", "<<SYS>>", "bos_token + '[INST]"}},
      {.name = "llama2-sys-strip", .present = {"[INST]", "<<SYS>>", "content.strip()"}},
      {.name = "llama2-sys", .present = {"[INST]", "<<SYS>>"}},
      {.name = "mistral-v1", .present = {"' [INST] ' + system_message"}},
      {.name = "mistral-v1", .present = {" [INST]"}, .absent = {"[AVAILABLE_TOOLS]"}},
      {.name = "mistral-v3-tekken", .present = {"\"[INST]\"", "[AVAILABLE_TOOLS]"}},
      {.name = "mistral-v3", .present = {"[INST]", "[AVAILABLE_TOOLS]"}},
      {.name = "llama2", .present = {"[INST]"}},
      {.name = "phi3", .present = {"<|assistant|>", "<|end|>"}},
      {.name = "chatglm4", .present = {"[gMASK]<sop>"}},
      {.name = "chatglm3", .present = {"[gMASK]sop"}},
      {.name = "zephyr", .present = {"<|user|>", "<|endoftext|>"}},
      {.name = "tinyllama", .present = {"<|user|>", "content'] + eos_token"}},
      {.name = "glmedge", .present = {"<|assistant|>", "<|user|>", "</s>"}},
      {.name = "falcon3", .present = {"<|assistant|>", "<|user|>"}},
      {.name = "monarch", .present = {"bos_token + message['role']"}},
      {.name = "gemma", .present = {"<start_of_turn>"}},
      {.name = "orion", .present = {"'\\n\\nAssistant: ' + eos_token"}},
      {.name = "openchat", .present = {"GPT4 Correct "}},
      {.name = "vicuna-orca", .present = {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
      {.name = "vicuna", .present = {"USER: ", "ASSISTANT: "}},
      {.name = "deepseek", .present = {"### Instruction:", "<|EOT|>"}},
      {.name = "command-r", .present = {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}},
      {.name = "llama3", .present = {"<|start_header_id|>", "<|end_header_id|>"}},
      {.name = "llama4", .present = {"<|header_start|>", "<|header_end|>"}},
      {.name = "deepseek3", .present = {"<｜Assistant｜>", "<｜User｜>"}},
      {.name = "deepseek2", .present = {"'Assistant: ' + message['content'] + eos_token"}},
      {.name = "exaone3", .present = {"[|system|]", "[|assistant|]", "[|endofturn|]"}},
      {.name = "minicpm", .present = {"<用户>"}},
      {.name = "granite", .present = {"<|start_of_role|>"}},
      {.name = "gpt-oss", .present = {"<|start|>", "<|channel|>"}},
      {.name = "megrez", .present = {"<|role_start|>", "<|turn_end|>"}},
      {.name = "rwkv-world", .present = {"rwkv-world"}},
  };
  return signatures;
}

bool Fits(const Signature& signature, std::string_view source) {
  const auto in_source = [source](std::string_view part) {
    return source.find(part) != std::string_view::npos;
  };
  return std::all_of(signature.present.begin(), signature.present.end(), in_source) &&
         std::none_of(signature.absent.begin(), signature.absent.end(), in_source);
}

ChatTemplate BuiltIn(std::string_view name) {
  Result<ChatTemplate> found = ChatTemplate::ByName(name);
  WINNOW_CHECK(found.has_value());
  return *found;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::ByName(std::string_view name) {
  for (const ChatFormat& format : ChatFormats()) {
    if (format.name == name) return ChatTemplate(&format);
  }
  return Error{"chat template '" + gguf::Printable(name) +
               "' unknown, built in: " + Joined(ChatTemplateNames())};
}

ChatTemplate ChatTemplate::ChatMl() { return BuiltIn("chatml"); }

std::string_view ChatTemplate::name() const { return format_->name; }

Result<std::vector<MarkedText>> ChatTemplate::Format(std::span<const ChatMessage> messages,
                                                     bool add_generation_prompt) const {
  std::vector<MarkedText> out;
  const auto markup = [&out](std::string_view text) { Append(out, text, true); };
  markup(format_->opening);
  bool user_is_open = false;  // by the system message
  bool answer_is_open = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    const ChatTurn* turn = FindTurn(*format_, role);
    if (turn == nullptr) {
      return Error{"chat: message " + std::to_string(i) + " has the role '" +
                   gguf::Printable(role) + "', expected system, user or assistant"};
    }
    const bool opens_user = role == "system" && format_->place == SystemPlace::kPrefixesUserTurn;
    if (opens_user && (i + 1 == messages.size() || messages[i + 1].role != "user")) {
      return Error{"chat: message " + std::to_string(i) + " has the role 'system', which " +
                   std::string(name()) +
                   " writes into a user turn: expected a message of the user next"};
    }
    if (!(role == "user" && user_is_open)) {
      if (i > 0) markup(turn->between);
      markup(turn->before);
    }
    user_is_open = opens_user;
    const bool trims =
        format_->trim == Trim::kAll || (format_->trim == Trim::kAssistant && role == "assistant");
    Append(out, trims ? Trimmed(content) : std::string_view(content), false);
    answer_is_open = add_generation_prompt && role == "assistant" && i + 1 == messages.size();
    if (!answer_is_open) markup(turn->after);
  }
  if (add_generation_prompt && !answer_is_open) markup(format_->answer);
  return out;
}

std::vector<std::string_view> ChatTemplateNames() {
  std::vector<std::string_view> names;
  for (const ChatFormat& format : ChatFormats()) names.push_back(format.name);
  return names;
}

Result<ChatTemplateChoice> DetectChatTemplate(std::string_view source) {
  if (source.size() > kMaxChatTemplateBytes) {
    return Error{"tokenizer: tokenizer.chat_template: " + std::to_string(source.size()) +
                 " bytes, expected at most " + std::to_string(kMaxChatTemplateBytes)};
  }
  for (const Signature& signature : Signatures()) {
    if (Fits(signature, source)) return ChatTemplateChoice{BuiltIn(signature.name), ""};
  }
  const std::string what = source.empty() ? "the model has no chat template"
                                          : "the model's chat template is none of those built in";
  return ChatTemplateChoice{ChatTemplate::ChatMl(),
                            what +
                                ": using chatml, which the model may not have been trained for; "
                                "`chat_template` chooses another: " +
                                Joined(ChatTemplateNames())};
}

}  // namespace winnow::tokenizer
