#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "chat/answer_parser.h"

namespace winnow::chat {

// Finds where a model begins to call a tool, in an answer that is being written: where AnswerParser
// takes what follows for a call, so not in its reasoning. That is behind CallMarker, or, of
// ToolFormat::kLlama3, where the answer or what follows a call begins with {"name".
class CallTrigger {
 public:
  explicit CallTrigger(const AnswerOptions& options);

  // What the answer goes on with. Where a call begins in it: what is written of the call, without
  // the marker. Once for each call.
  std::optional<std::string> Push(std::string_view text);
  // What Push would give.
  std::optional<std::string> Peek(std::string_view text) const;

 private:
  struct Trigger {
    size_t call = 0, end = 0;  // where in a text the call begins, and where that is clear
  };
  std::optional<Trigger> TriggerIn(std::string_view text) const;

  ToolFormat format_;
  AnswerParser parser_;
  std::string text_;    // what the parser holds back, or what may be a call
  bool found_ = false;  // the call that the parser is in
};

// Push finds a call only in texts with one of these characters.
std::string_view TriggerEnds(ToolFormat format);

}  // namespace winnow::chat
