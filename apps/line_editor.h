#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::apps {

// A line that is edited on the terminal, by libedit: arrow keys, history, completion, and pastes of
// any length and any number of lines. ~/.editrc can change the keys.
//
// Between two lines the terminal neither echoes nor cuts lines at 4,095 bytes: what is typed or
// pasted while the model answers waits for the next Read. The destructor gives the terminal back as
// it was.
class LineEditor {
 public:
  struct Options {
    std::vector<std::string> history;             // oldest first
    std::span<const std::string_view> commands;   // completed at the start of a line: "/help"
    std::span<const std::string_view> take_file;  // of these, those that a file's name follows
  };
  // Whether somebody sits there: standard input is a terminal, and standard output or standard
  // error, where the line is shown.
  static bool IsPossible();

  // `interrupted` is set by signal handlers (interrupt.h). Requires: IsPossible().
  LineEditor(Options options, const std::atomic<bool>& interrupted);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // kInterrupted: a signal came while it waited; `line` is what had been typed by then.
  enum class End { kNone, kEndOfInput, kInterrupted };
  // Shows `prompt` and reads a line, without its line feed. A bracketed paste is part of the line
  // with its line feeds. UTF-8; bytes that are none become U+FFFD.
  End Read(std::string_view prompt, std::string* line);
  // The next lines can be recalled with the arrow keys.
  void AddToHistory(const std::string& line);

 private:
  class Editor;  // hides libedit
  std::unique_ptr<Editor> editor_;
};

// What `line` up to the cursor can be completed to: all words the last one of it may become.
struct Completion {
  size_t n_typed = 0;              // characters before the cursor that the candidates replace
  std::vector<std::string> words;  // sorted; folders end in '/'
};
Completion FindCompletion(std::string_view line, const LineEditor::Options& options);
// The longest beginning that all words share. Requires: not empty.
std::string CommonStart(std::span<const std::string> words);

}  // namespace winnow::apps
