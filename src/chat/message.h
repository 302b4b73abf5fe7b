#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

// Fields of messages in OpenAI's form.
namespace winnow::chat {

// The texts of content in parts, joined with line feeds. `where` names the message in the error: a
// part that is not text.
Result<std::string> JoinedParts(const nlohmann::ordered_json& parts, const std::string& where);

// The text of a message: its content, or the texts of its parts joined; empty if it has none.
std::string ContentText(const nlohmann::ordered_json& message);

// Parses the arguments of a call as an object; other text stays text. Error: nested deeper, or with
// more names or values, than a call can need.
Result<nlohmann::ordered_json> ParsedArguments(const std::string& text);

}  // namespace winnow::chat
