#include "chat_input.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "console.h"
#include "interrupt.h"

namespace winnow::apps {

ChatInput::ChatInput() : is_terminal_(isatty(STDIN_FILENO) == 1) {}
ChatInput::~ChatInput() { std::free(buffer_); }

ChatInput::End ChatInput::Read(std::string* message) {
  if (IsTerminated()) return End::kInterrupted;
  const End end = ReadLines(message);
  return IsTerminated() ? End::kInterrupted : end;
}

ChatInput::End ChatInput::ReadLines(std::string* message) {
  message->clear();
  for (;;) {
    if (is_terminal_) {
      Print(UsesColour(Stream::kOut) ? "\033[1;32m> \033[0m" : "> ");
      Flush();
    }
    errno = 0;
    const ssize_t n = getline(&buffer_, &capacity_, stdin);
    if (n < 0) {
      if (errno == EINTR) return End::kInterrupted;
      return message->empty() ? End::kEndOfInput : End::kNone;
    }
    std::string_view line(buffer_, static_cast<size_t>(n));
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.remove_suffix(1);
    *message += line;
    if (!goes_on) return End::kNone;
    *message += '\n';
  }
}

}  // namespace winnow::apps
