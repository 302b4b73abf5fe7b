#include "chat/message.h"

#include <utility>

#include "gguf/printable.h"

namespace winnow::chat {
namespace {

using Json = nlohmann::ordered_json;

// Limits on the arguments of a call: ordered_json searches all names of an object for each new one.
constexpr int kMaxArgumentLevels = 64, kMaxArgumentNames = 512, kMaxArgumentValues = 65536;

}  // namespace

Result<std::string> JoinedParts(const nlohmann::ordered_json& parts, const std::string& where) {
  std::string out;
  for (const Json& part : parts) {
    const bool text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!text) {
      const std::string type = part.is_object() && part.contains("type") && part["type"].is_string()
                                   ? part["type"].get<std::string>()
                                   : "?";
      return Error{where + ".content: a part of type '" + gguf::Printable(type) +
                   "', expected text: this model accepts only text"};
    }
    if (!out.empty()) out += '\n';
    out += part["text"].get<std::string>();
  }
  return out;
}

std::string ContentText(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  auto text = content->is_array() ? JoinedParts(*content, "") : std::string();
  return text ? *std::move(text) : std::string();
}

Result<nlohmann::ordered_json> ParsedArguments(const std::string& text) {
  int n_names = 0, n_values = 0;
  bool fits = true;
  const auto keep = [&](int depth, Json::parse_event_t event, const Json&) {
    ++(event == Json::parse_event_t::key ? n_names : n_values);
    fits = fits && depth <= kMaxArgumentLevels && n_names <= kMaxArgumentNames &&
           n_values <= kMaxArgumentValues;
    return fits;  // values above the limits are not stored
  };
  Json parsed = Json::parse(text, keep, /*allow_exceptions=*/false);
  if (!fits) {
    return Error{"tool_calls: the arguments of a call are nested deeper than " +
                 std::to_string(kMaxArgumentLevels) + " levels, or hold more than " +
                 std::to_string(kMaxArgumentNames) + " names or " +
                 std::to_string(kMaxArgumentValues) + " values"};
  }
  return parsed.is_object() ? std::move(parsed) : Json(text);
}

}  // namespace winnow::chat
