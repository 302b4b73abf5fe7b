#include "chat/tool_format.h"

namespace winnow::chat {

ToolFormat DetectToolFormat(std::string_view source) {
  const auto has = [source](std::string_view part) {
    return source.find(part) != std::string_view::npos;
  };
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has("<tool_call>")) return ToolFormat::kHermes;
  if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
    return ToolFormat::kLlama3;
  }
  return has("tools") ? ToolFormat::kHermes : ToolFormat::kNone;
}

std::string_view CallMarker(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
      return "<tool_call>";
    case ToolFormat::kLlama3:
      return "<|python_tag|>";
    case ToolFormat::kMistral:
      return "[TOOL_CALLS]";
    case ToolFormat::kNone:
      break;
  }
  return "";
}

std::vector<std::string_view> ToolMarkers(ToolFormat format) {
  std::vector<std::string_view> markers = {"<think>", "</think>"};
  const auto add = [&markers](std::initializer_list<std::string_view> more) {
    markers.insert(markers.end(), more);
  };
  if (format == ToolFormat::kHermes) add({"<tool_call>", "</tool_call>"});
  if (format == ToolFormat::kLlama3) add({"<|python_tag|>"});
  if (format == ToolFormat::kMistral) add({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"});
  return markers;
}

}  // namespace winnow::chat
