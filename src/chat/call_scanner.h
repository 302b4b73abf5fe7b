#pragma once

#include <string>
#include <string_view>

namespace winnow::chat {

// Reads one tool call, a JSON object {"name": "...", "arguments": {...}}, byte by byte. Brackets
// and tags within strings are text. "parameters" is accepted for "arguments".
class CallScanner {
 public:
  enum class State {
    kOpen,      // needs more bytes
    kDone,      // the object is complete
    kNoObject,  // not a JSON object, or not a call
  };

  State Feed(char c);
  State state() const;

  bool has_name() const { return has_name_; }
  bool has_arguments() const { return has_arguments_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  // Returns the part of the arguments read since the last call: JSON text.
  std::string TakeArguments();

 private:
  enum class At { kStart, kKey, kColon, kValue, kInValue, kComma, kEnd, kFailed };

  void StartValue(char c);
  void FinishValue();

  At at_ = At::kStart;
  bool first_ = true;  // no member yet: the object may end
  std::string piece_;  // the raw text of the current key or value
  std::string key_;
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;           // of brackets within a value
  bool is_string_ = false;  // whether the current value is one
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::string name_;
  std::string id_;
  std::string arguments_;
};

}  // namespace winnow::chat
