#pragma once

#include <cstddef>
#include <string>

namespace winnow::apps {

// The messages of a conversation, from standard input.
class ChatInput {
 public:
  ChatInput();
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  // kInterrupted: a signal came while it waited, or the program is to end.
  enum class End { kNone, kEndOfInput, kInterrupted };
  // A message: one line, or several joined by backslashes at their ends.
  End Read(std::string* message);
  bool is_terminal() const { return is_terminal_; }

 private:
  End ReadLines(std::string* message);

  const bool is_terminal_;
  char* buffer_ = nullptr;  // of getline, which allocates it
  size_t capacity_ = 0;
};

}  // namespace winnow::apps
