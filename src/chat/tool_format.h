#pragma once

#include <string_view>
#include <vector>

namespace winnow::chat {

// How a model writes calls of tools into its answer.
enum class ToolFormat {
  kNone,     // it does not: all is text
  kHermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>, as Hermes, Qwen, SmolLM3
  kLlama3,   // the whole answer is {"name": ..., "parameters": {...}}, several with ';' between
  kMistral,  // [TOOL_CALLS] [{"name": ..., "arguments": {...}}] or [TOOL_CALLS]name[ARGS]{...}
};

// By strings that only a format's templates contain. kHermes where the template takes tools and
// none is recognised.
ToolFormat DetectToolFormat(std::string_view template_source);

// What begins a call; empty: nothing does. A call of kLlama3 may also begin without it.
std::string_view CallMarker(ToolFormat format);

// Tokens with these texts are part of the format: AnswerParser must see them even where they are
// control tokens, so take `Piece(token, /*render_special=*/true)` of them.
std::vector<std::string_view> ToolMarkers(ToolFormat format);

}  // namespace winnow::chat
