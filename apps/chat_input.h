#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "line_editor.h"

namespace winnow::apps {

// Reads a conversation's messages from standard input: with a line editor on a terminal, else from
// a pipe.
class ChatInput {
 public:
  // Commands, and those of them that take a file name: both are completed on a terminal.
  struct Options {
    std::span<const std::string_view> commands = {};
    std::span<const std::string_view> take_file = {};
    std::string history_file;  // messages of earlier chats, used on a terminal; empty: none
  };
  // Reports a history that cannot be read to the log and leaves the file unchanged.
  ChatInput(const Options& options, const std::atomic<bool>& interrupted, Log& log);
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  // kInterrupted: a signal arrived during the wait, or the program is to end.
  enum class End { kNone, kEndOfInput, kInterrupted, kFailed };  // kFailed: the log says why
  // Reads a message: one line, or several lines that end in backslashes. On a terminal also a whole
  // paste, and the lines between """ and """; Ctrl-C there discards the typed text, or interrupts
  // if there is none.
  End Read(std::string* message);
  bool is_terminal() const { return is_terminal_; }

 private:
  End ReadPiped(std::string* message);
  End ReadTyped(std::string* message);
  // Reads one line after the prompt. kNone with nullopt: the typed text was discarded.
  End EditLine(const char* prompt, bool begun, std::optional<std::string>* line);
  void Remember(const std::string& message);

  const bool is_terminal_;
  Log& log_;
  std::string history_file_;
  std::unique_ptr<LineEditor> editor_;  // null: standard input or the output is no terminal
  char* buffer_ = nullptr;              // getline's buffer, allocated by getline
  size_t capacity_ = 0;
};

}  // namespace winnow::apps
