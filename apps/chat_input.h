#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "line_editor.h"

namespace winnow::apps {

// The messages of a conversation, from standard input: edited on a terminal, read from a pipe.
class ChatInput {
 public:
  // The commands of a conversation, and which of them take a file: completed on a terminal.
  struct Options {
    std::span<const std::string_view> commands = {};
    std::span<const std::string_view> take_file = {};
    std::string history_file;  // of earlier conversations, used on a terminal; empty: none
  };
  // A history that cannot be read is told to the log and left alone.
  ChatInput(const Options& options, const std::atomic<bool>& interrupted, Log& log);
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  // kInterrupted: a signal came while it waited, or the program is to end.
  enum class End { kNone, kEndOfInput, kInterrupted, kFailed };  // kFailed: the log says why
  // A message: one line, or several joined by backslashes at their ends. On a terminal also what is
  // pasted as a whole, and the lines between """ and """; Ctrl-C there discards what is typed, and
  // interrupts where nothing is.
  End Read(std::string* message);
  bool is_terminal() const { return is_terminal_; }

 private:
  End ReadPiped(std::string* message);
  End ReadTyped(std::string* message);
  // One line with the prompt in front. kNone with nullopt: what was typed is discarded.
  End EditLine(const char* prompt, bool begun, std::optional<std::string>* line);
  void Remember(const std::string& message);

  const bool is_terminal_;
  const std::atomic<bool>& interrupted_;
  Log& log_;
  std::string history_file_;
  std::unique_ptr<LineEditor> editor_;  // null: standard input is no terminal, or nobody sees it
  char* buffer_ = nullptr;              // of getline, which allocates it
  size_t capacity_ = 0;
};

}  // namespace winnow::apps
