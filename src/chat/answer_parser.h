#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/call_scanner.h"
#include "chat/tool_format.h"

namespace winnow::chat {

struct ToolCallDelta {
  int index = 0;          // of the call in this answer, from 0
  std::string id;         // in a call's first delta, if the model wrote one
  std::string name;       // complete, in a call's first delta; empty afterwards
  std::string arguments;  // JSON text to append

  bool operator==(const ToolCallDelta&) const = default;
};

struct AnswerDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

struct AnswerOptions {
  ToolFormat tools = ToolFormat::kNone;  // kNone if a request has no tools
  bool reasoning = true;                 // <think>...</think> at the beginning is reasoning
  bool starts_in_reasoning = false;      // the prompt has opened it already (EndsInReasoning)
};

// Whether a prompt ends with an open <think>, so that the answer begins in reasoning.
bool EndsInReasoning(std::string_view prompt);

// Parses an answer while it is generated into text, reasoning and tool calls. The joined output
// does not depend on how the text is cut into pieces. White space around calls and reasoning is
// dropped. Text that looks like a call but is not one is content, byte for byte.
class AnswerParser {
 public:
  explicit AnswerParser(const AnswerOptions& options);

  AnswerDelta Push(std::string_view text);
  // Flushes what is held back. A call that was cut short counts as a call if its name is known.
  AnswerDelta Finish();

  // Whether the text so far ends within a call, or within what may become one.
  bool in_call() const { return at_ == At::kCall || at_ == At::kArray || at_ == At::kNamed; }
  size_t n_held() const { return held_.size(); }  // bytes at the end that are not classified yet

 private:
  enum class At {
    kStart,  // <think> may follow
    kReasoning,
    kContent,
    kCall,   // after a marker: an object
    kArray,  // after Mistral's marker: a bracket or a name
    kNamed,  // Mistral's name[ARGS]{...}
    kAfterCall,
  };

  bool Advance(AnswerDelta* delta);  // false: more text is needed
  bool AdvanceStart();
  bool AdvanceReasoning(AnswerDelta* delta);
  bool AdvanceContent(AnswerDelta* delta);
  bool AdvanceCall(AnswerDelta* delta);
  bool AdvanceArray(AnswerDelta* delta);
  bool AdvanceNamed(AnswerDelta* delta);
  bool AdvanceAfterCall();
  void EmitContent(size_t n_bytes, AnswerDelta* delta);
  void StartCall();
  void TakeName();
  void EmitCall(AnswerDelta* delta);
  void AbandonCall(AnswerDelta* delta);
  bool RequiresArguments() const { return options_.tools == ToolFormat::kLlama3; }

  AnswerOptions options_;
  At at_ = At::kStart;
  std::string held_;  // not classified yet
  bool finishing_ = false;
  bool fresh_ = true;         // no content yet
  bool drops_space_ = false;  // before the next content
  std::string raw_;           // the text of what may be a call, if it turns out not to be one
  CallScanner scanner_;
  bool in_array_ = false;
  bool sure_ = false;  // it is a call, and its name and id are final
  std::string call_name_;
  std::string call_id_;
  bool committed_ = false;  // the call's first delta has been emitted
  int n_calls_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace winnow::chat
