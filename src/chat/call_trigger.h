#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parser.h"

namespace winnow::chat {

// Finds where a model begins to call a tool, in an answer that is being written: where AnswerParser
// takes what follows for a call, so not in its reasoning. That is behind CallMarker, or, of
// ToolFormat::kLlama3, where the answer or what follows a call begins with {"name": "NAME", the
// name of a tool.
class CallTrigger {
 public:
  CallTrigger(const AnswerOptions& options, std::vector<std::string> tools);

  // What the answer goes on with. Where a call begins in it: what is written of the call, without
  // the marker. Once for each call.
  std::optional<std::string> Push(std::string_view text);
  // What Push would give; quick where that is nothing.
  std::optional<std::string> Peek(std::string_view text) const;

 private:
  // Where in the text the call begins that its last byte makes one. `may_come`: of an object
  // without a marker, more text may make it a call.
  std::optional<size_t> CallIn(std::string_view text, bool* may_come) const;
  std::optional<size_t> NamedObjectIn(std::string_view text, bool* may_come) const;

  ToolFormat format_;
  std::vector<std::string> tools_;
  AnswerParser parser_;
  std::string text_;    // what the parser holds back, or what may be a call
  bool known_ = false;  // the call that the parser is in was found, or is none
};

// Push finds a call only in texts with one of these characters.
std::string_view TriggerEnds(ToolFormat format);

}  // namespace winnow::chat
