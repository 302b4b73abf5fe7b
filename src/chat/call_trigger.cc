#include "chat/call_trigger.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "chat/json_spaces.h"
#include "chat/tool_format.h"

namespace winnow::chat {
namespace {

// The end of the JSON string that begins at `quote`; npos: not in this text.
size_t StringEnd(std::string_view text, size_t quote) {
  for (size_t i = quote + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

CallTrigger::CallTrigger(const AnswerOptions& options, std::vector<std::string> tools)
    : format_(options.tools), tools_(std::move(tools)), parser_(options) {}

std::optional<size_t> CallTrigger::NamedObjectIn(std::string_view text, bool* may_come) const {
  const size_t brace = text.find_first_not_of(" \n\r\t;");  // ';' separates calls
  size_t at = brace;
  for (const std::string_view part : {"{", "\"name\"", ":"}) {
    if (at != std::string_view::npos) at = text.find_first_not_of(kJsonSpaces, at);
    const std::string_view rest = at == std::string_view::npos ? "" : text.substr(at);
    *may_come = part.starts_with(rest);
    if (!rest.starts_with(part)) return std::nullopt;
    at += part.size();
  }
  at = text.find_first_not_of(kJsonSpaces, at);
  *may_come = at == std::string_view::npos;
  if (*may_come || text[at] != '"') return std::nullopt;
  const size_t end = StringEnd(text, at);
  *may_come = end == std::string_view::npos;
  if (end != text.size()) return std::nullopt;
  const auto name = nlohmann::json::parse(text.substr(at), nullptr, /*allow_exceptions=*/false);
  const bool is_tool =
      name.is_string() && std::find(tools_.begin(), tools_.end(), name) != tools_.end();
  return is_tool ? std::optional(brace) : std::nullopt;
}

std::optional<size_t> CallTrigger::CallIn(std::string_view text, bool* may_come) const {
  const std::string_view marker = CallMarker(format_);
  if (marker.empty()) return std::nullopt;
  // In an object that may be a call, a marker is text.
  if (!parser_.in_call() && text.ends_with(marker)) return text.size();
  return format_ == ToolFormat::kLlama3 ? NamedObjectIn(text, may_come) : std::nullopt;
}

std::optional<std::string> CallTrigger::Push(std::string_view text) {
  std::optional<std::string> call;
  for (size_t i = 0; i < text.size(); ++i) {
    text_ += text[i];
    bool may_come = true;
    const auto begin = known_ ? std::nullopt : CallIn(text_, &may_come);
    parser_.Push(text.substr(i, 1));
    if (!parser_.in_call()) {
      known_ = false;
      text_.erase(0, text_.size() - parser_.n_held());
    } else if (begin) {
      known_ = true;
      if (!call) call = text_.substr(*begin) + std::string(text.substr(i + 1));
    } else if (!may_come) {
      known_ = true;
    }
  }
  return call;
}

std::optional<std::string> CallTrigger::Peek(std::string_view text) const {
  // Skip text that cannot begin a call: a known call, and white space outside of one.
  std::string_view seen = known_ ? std::string_view() : text_;
  const std::string_view marker = CallMarker(format_);
  if (!parser_.in_call() && seen.size() > marker.size()) {
    seen.remove_prefix(seen.size() - marker.size());
  }
  const std::string all = std::string(seen) + std::string(text);
  const bool may_begin =
      all.find(marker) != std::string::npos ||
      (format_ == ToolFormat::kLlama3 && all.find("\"name\"") != std::string::npos);
  if (!may_begin) return std::nullopt;
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
