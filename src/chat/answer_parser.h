#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::chat {

enum class ToolFormat { kNone, kHermes, kLlama3, kMistral };

// Control tokens that must reach the parser.
std::vector<std::string_view> MarkersOf(ToolFormat format);

struct ToolCallDelta {
  int index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

struct AnswerDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

struct AnswerOptions {
  ToolFormat tools = ToolFormat::kNone;
  bool reasoning = true;
  bool starts_in_reasoning = false;
};
bool EndsInReasoning(std::string_view prompt_text);

// Takes an answer apart while it is generated.
class AnswerParser {
 public:
  explicit AnswerParser(const AnswerOptions&) {}
  AnswerDelta Push(std::string_view text) {
    AnswerDelta delta;
    delta.content = text;
    return delta;
  }
  AnswerDelta Finish() { return {}; }
  int n_tool_calls() const { return 0; }
};

}  // namespace winnow::chat
