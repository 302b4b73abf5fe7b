#include "chat_input.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "chat_history.h"
#include "console.h"
#include "interrupt.h"

namespace winnow::apps {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr const char* kNextLine = "... ";

const char* Prompt() { return UsesColour(Stream::kOut) ? "\1\033[1;32m\1> \1\033[0m\1" : "> "; }

// Whether a message that begins with quotes also ends with them.
bool IsClosed(std::string_view message) {
  return message.size() >= 2 * kQuotes.size() && message.ends_with(kQuotes);
}

// The text between the quotes, without the line feeds next to them.
std::string Unquoted(std::string_view message) {
  message.remove_prefix(kQuotes.size());
  message.remove_suffix(kQuotes.size());
  if (message.starts_with('\n')) message.remove_prefix(1);
  if (message.ends_with('\n')) message.remove_suffix(1);
  return std::string(message);
}

}  // namespace

ChatInput::ChatInput(const Options& options, const std::atomic<bool>& interrupted, Log& log)
    : is_terminal_(isatty(STDIN_FILENO) == 1), log_(log), history_file_(options.history_file) {
  if (!LineEditor::IsPossible()) return;
  LineEditor::Options editor = {
      .history = {}, .commands = options.commands, .take_file = options.take_file};
  if (!history_file_.empty()) {
    auto history = ReadHistory(history_file_);
    if (history) {
      editor.history = *std::move(history);
    } else {
      log.Warning("history: " + history.error().message);
      history_file_.clear();
    }
  }
  editor_ = std::make_unique<LineEditor>(std::move(editor), interrupted);
}

ChatInput::~ChatInput() { std::free(buffer_); }

ChatInput::End ChatInput::Read(std::string* message) {
  message->clear();
  if (IsTerminated()) return End::kInterrupted;
  const End end = editor_ ? ReadTyped(message) : ReadPiped(message);
  return IsTerminated() ? End::kInterrupted : end;
}

ChatInput::End ChatInput::ReadTyped(std::string* message) {
  std::optional<std::string> line;
  for (bool begun = false;;) {
    const End end = EditLine(begun ? kNextLine : Prompt(), begun, &line);
    if (end == End::kEndOfInput && begun) return End::kNone;  // returns the lines so far
    if (end != End::kNone) return end;
    if (!line) {
      message->clear();
      begun = false;
      continue;
    }
    *message += *line;
    const bool is_block = message->starts_with(kQuotes);
    const bool goes_on = is_block ? !IsClosed(*message) : message->ends_with('\\');
    if (!goes_on) break;
    if (!is_block) message->pop_back();
    *message += '\n';
    begun = true;
  }
  if (message->starts_with(kQuotes)) *message = Unquoted(*message);
  Remember(*message);
  return End::kNone;
}

ChatInput::End ChatInput::EditLine(const char* prompt, bool begun,
                                   std::optional<std::string>* line) {
  std::string text;
  switch (editor_->Read(prompt, &text)) {
    case LineEditor::End::kEndOfInput:
      return End::kEndOfInput;
    case LineEditor::End::kInterrupted:
      if (IsTerminated() || (text.empty() && !begun)) return End::kInterrupted;
      ClearInterrupt();
      Print("\n");
      Flush();
      line->reset();
      return End::kNone;
    case LineEditor::End::kNone:
      *line = std::move(text);
  }
  return End::kNone;
}

void ChatInput::Remember(const std::string& message) {
  if (message.empty()) return;
  editor_->AddToHistory(message);
  if (history_file_.empty()) return;
  if (const auto added = AppendToHistory(history_file_, message); !added) {
    log_.Warning("history: " + added.error().message + "; it is not kept");
    history_file_.clear();
  }
}

ChatInput::End ChatInput::ReadPiped(std::string* message) {
  for (;;) {
    errno = 0;
    const ssize_t n = getline(&buffer_, &capacity_, stdin);
    if (n < 0) {
      if (errno == EINTR) return End::kInterrupted;
      if (ferror(stdin) != 0) {
        log_.Error(std::string("standard input: ") + std::strerror(errno));
        return End::kFailed;
      }
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
