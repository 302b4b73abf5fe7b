#include "chat/answer_parser.h"

namespace winnow::chat {

std::vector<std::string_view> MarkersOf(ToolFormat) { return {}; }
bool EndsInReasoning(std::string_view) { return false; }

}  // namespace winnow::chat
