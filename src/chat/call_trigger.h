#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_parser.h"

namespace winnow::chat {

// Finds where the model begins a tool call in an answer that is being generated: where AnswerParser
// takes the following text for a call, so not in reasoning. That is after CallMarker or, for
// ToolFormat::kLlama3, at {"name": "NAME" with the name of a tool, at the beginning of the answer
// or after a call.
class CallTrigger {
 public:
  CallTrigger(const AnswerOptions& options, std::vector<std::string> tools);

  // Appends text. If a call begins in it, returns the text of the call so far, without the marker.
  // Each call is reported once.
  std::optional<std::string> Push(std::string_view text);
  // What Push would return; fast if that is nullopt.
  std::optional<std::string> Peek(std::string_view text) const;

 private:
  // Where the call begins that the last byte of the text makes recognizable. `may_come`: for an
  // object without a marker, whether more text can make it a call.
  std::optional<size_t> CallIn(std::string_view text, bool* may_come) const;
  std::optional<size_t> NamedObjectIn(std::string_view text, bool* may_come) const;

  ToolFormat format_;
  std::vector<std::string> tools_;
  AnswerParser parser_;
  std::string text_;    // what the parser holds back, or what may become a call
  bool known_ = false;  // the parser's current call was reported, or cannot become one
};

// Push finds a call only in text that contains one of these characters.
std::string_view TriggerEnds(ToolFormat format);

}  // namespace winnow::chat
