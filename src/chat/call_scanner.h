#pragma once

#include <string>
#include <string_view>

namespace winnow::chat {

// Reads one call of a tool, a JSON object {"name": "...", "arguments": {...}}, byte by byte. It
// knows strings: brackets and tags within them are text. "parameters" counts as "arguments".
class CallScanner {
 public:
  enum class State {
    kOpen,      // more bytes must come
    kDone,      // the object is complete
    kNoObject,  // this is no JSON object, or no call
  };

  State Feed(char c);
  State state() const;

  bool has_name() const { return has_name_; }
  bool has_arguments() const { return has_arguments_; }
  const std::string& name() const { return name_; }
  const std::string& id() const { return id_; }
  // What has become known of the arguments since the last time: JSON text.
  std::string TakeArguments();

 private:
  enum class At { kStart, kKey, kColon, kValue, kInValue, kComma, kEnd, kFailed };

  void StartValue(char c);
  void FinishValue();

  At at_ = At::kStart;
  bool first_ = true;  // no member yet: the object may end
  std::string piece_;  // the key or value that is being read, as it is written
  std::string key_;
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;           // of brackets within a value
  bool is_string_ = false;  // the value
  bool has_name_ = false;
  bool has_arguments_ = false;
  std::string name_;
  std::string id_;
  std::string arguments_;
};

}  // namespace winnow::chat
