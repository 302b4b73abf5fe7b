#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "conversation.h"

namespace winnow::apps {

// Executes chat lines that begin with a slash.
class ChatCommands {
 public:
  ChatCommands(ChatFlags& flags, Conversation& conversation, ConsoleLog& log)
      : flags_(flags), conversation_(conversation), log_(log) {}

  // All commands ("/help", ...), and those that take a file name; for completion.
  static std::span<const std::string_view> Names();
  static std::span<const std::string_view> TakeFile();

  struct Done {
    bool ends = false;  // the chat ends
    std::optional<Result<StopReason>> answer = {};
  };
  // nullopt: the line is a message.
  std::optional<Done> Run(const std::string& line);
  // Returns the texts of /read commands since the last call, to be put before a message.
  std::string TakeAttached();

 private:
  void Clear();
  void Read(const std::string& path);
  void Save(const std::string& path);
  void Load(const std::string& path);
  void Set(std::string_view text);
  void ShowSettings();
  Result<void> SetParameter(const std::string& name, const std::string& value);

  ChatFlags& flags_;
  Conversation& conversation_;
  ConsoleLog& log_;
  ConsoleLog shown_;  // what a command is asked to show, also with --quiet
  std::string attached_;
};

}  // namespace winnow::apps
