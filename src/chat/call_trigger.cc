#include "chat/call_trigger.h"

#include "chat/tool_format.h"

namespace winnow::chat {
namespace {

constexpr std::string_view kName = "\"name\"";
constexpr std::string_view kSpaces = " \n\r\t";
constexpr size_t kMaxLookedAt = 256;  // bytes before a token; what is longer begins no call

}  // namespace

CallTrigger::CallTrigger(const AnswerOptions& options) : format_(options.tools), parser_(options) {}

std::optional<CallTrigger::Trigger> CallTrigger::TriggerIn(std::string_view text) const {
  const std::string_view marker = CallMarker(format_);
  if (marker.empty()) return std::nullopt;
  // Within an object that may be a call a marker is text.
  if (!parser_.in_call()) {
    if (const size_t found = text.find(marker); found != std::string_view::npos) {
      return Trigger{.call = found + marker.size(), .end = found + marker.size()};
    }
  }
  if (format_ != ToolFormat::kLlama3) return std::nullopt;
  const size_t brace = text.find_first_not_of(" \n\r\t;");  // ';' divides calls
  if (brace == std::string_view::npos || text[brace] != '{') return std::nullopt;
  const size_t key = text.find_first_not_of(kSpaces, brace + 1);
  if (key == std::string_view::npos || !text.substr(key).starts_with(kName)) return std::nullopt;
  return Trigger{.call = brace, .end = key + kName.size()};
}

std::optional<std::string> CallTrigger::Push(std::string_view text) {
  const size_t before = text_.size();
  text_ += text;
  const auto trigger = found_ ? std::nullopt : TriggerIn(text_);
  const size_t n = trigger && trigger->end > before ? trigger->end - before : 0;
  parser_.Push(text.substr(0, n));
  const bool begins = n > 0 && parser_.in_call();
  parser_.Push(text.substr(n));
  std::optional<std::string> call;
  if (begins) call = text_.substr(trigger->call);
  found_ = (found_ || begins) && parser_.in_call();
  if (!parser_.in_call()) text_.erase(0, text_.size() - parser_.n_held());
  return call;
}

std::optional<std::string> CallTrigger::Peek(std::string_view text) const {
  if (found_ || text_.size() > kMaxLookedAt) return std::nullopt;
  if (!TriggerIn(text_ + std::string(text))) return std::nullopt;
  CallTrigger copy = *this;
  return copy.Push(text);
}

std::string_view TriggerEnds(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return ">";
    case ToolFormat::kLlama3:
      return ">\"";
    case ToolFormat::kMistral:
      return "]";
    case ToolFormat::kNone:
      break;
  }
  return "";
}

}  // namespace winnow::chat
