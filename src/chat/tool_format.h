#pragma once

#include <string_view>
#include <vector>

namespace winnow::chat {

// How a model writes tool calls into its answer.
enum class ToolFormat {
  kNone,     // never: all is text
  kHermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call> (Hermes, Qwen, SmolLM3)
  kLlama3,   // the whole answer is {"name": ..., "parameters": {...}}, several with ';' between
  kMistral,  // [TOOL_CALLS] [{"name": ..., "arguments": {...}}] or [TOOL_CALLS]name[ARGS]{...}
};

// Detected by strings that only a format's templates contain. If the template takes tools but none
// is found, kHermes.
ToolFormat DetectToolFormat(std::string_view template_source);

// What begins a call; empty if nothing does. A kLlama3 call may also begin without it.
std::string_view CallMarker(ToolFormat format);

// Tokens with these texts are part of the format. AnswerParser must see them even if they are
// control tokens: pass it `Piece(token, /*render_special=*/true)`.
std::vector<std::string_view> ToolMarkers(ToolFormat format);

}  // namespace winnow::chat
