#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::apps {

// A line editor on libedit: arrow keys, history, completion, and pastes of any length and number of
// lines. ~/.editrc can change the keys.
//
// Between two lines the terminal neither echoes nor cuts lines at 4,095 bytes: text typed or pasted
// while the model answers waits for the next Read. The destructor restores the terminal.
class LineEditor {
 public:
  struct Options {
    std::vector<std::string> history;             // oldest first
    std::span<const std::string_view> commands;   // completed at the start of a line: "/help"
    std::span<const std::string_view> take_file;  // the commands that take a file name
  };
  // Whether standard input is a terminal, and standard output or standard error, where the line is
  // shown, is one too.
  static bool IsPossible();

  // `interrupted` is set by signal handlers (interrupt.h). Requires: IsPossible().
  LineEditor(Options options, const std::atomic<bool>& interrupted);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // kInterrupted: a signal arrived during the wait; `line` is the text typed so far.
  enum class End { kNone, kEndOfInput, kInterrupted };
  // Shows `prompt` and reads a line, without its line feed. A bracketed paste becomes part of the
  // line with its line feeds. The result is UTF-8; invalid bytes become U+FFFD.
  End Read(std::string_view prompt, std::string* line);
  // Adds a line that arrow keys can recall in later calls.
  void AddToHistory(const std::string& line);

 private:
  class Editor;  // keeps libedit out of this header
  std::unique_ptr<Editor> editor_;
};

// Completions of the last word of `line`, which ends at the cursor.
struct Completion {
  size_t n_typed = 0;              // characters before the cursor that a candidate replaces
  std::vector<std::string> words;  // sorted; folders end in '/'
};
Completion FindCompletion(std::string_view line, const LineEditor::Options& options);
// The longest common prefix of all words. Requires: not empty.
std::string CommonStart(std::span<const std::string> words);

}  // namespace winnow::apps
