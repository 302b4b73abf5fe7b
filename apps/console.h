#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"

namespace winnow::apps {

// Exit codes of a command; for those after a signal see interrupt.h.
enum ExitCode { kDone = 0, kFailed = 1, kMisused = 2, kBrokenPipe = 141 };

enum class Stream { kOut, kError };
bool IsTerminal(Stream stream);
// Colour only on a terminal, and not if NO_COLOR is set.
bool UsesColour(Stream stream);

// Columns of standard output's terminal; 0: not a terminal.
size_t TerminalWidth();

// Writes messages to stderr, with warnings and errors marked, over a progress line if there is one.
// Drops messages below `min_level`.
class ConsoleLog final : public Log {
 public:
  explicit ConsoleLog(LogLevel min_level = LogLevel::kInfo) : min_level_(min_level) {}
  void set_min_level(LogLevel min_level) { min_level_ = min_level; }
  void Write(LogLevel level, std::string_view message) override;

 private:
  LogLevel min_level_;
};

// A line on stderr with the progress and the remaining time. Shown only on a terminal and only if
// the work takes more than a moment; removed by Erase, by any output, and by the destructor. Not
// shown while a line of results is open on the terminal ("[1]4.2,"), which it would overwrite and
// which itself shows the progress.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(double done);  // 0..1
  void Erase();

 private:
  std::string what_;
  bool enabled_;
  bool shown_ = false;  // since the last Erase; other output may have removed it
  std::chrono::steady_clock::time_point start_, last_;
};

// "1.3 MiB", "512 B".
std::string HumanBytes(int64_t bytes);
// "1.24 B", "260.03 K": in the units used for parameter counts.
std::string HumanCount(int64_t count);
// "1 h 02 min", "3 min 20 s", "12 s".
std::string HumanDuration(double seconds);
// `text` padded with spaces on the left to `width`.
std::string PadLeft(std::string text, size_t width);

// Writes to stdout. Flush and FinishOutput report failed writes.
void Print(std::string_view text);
// Whether stdout accepted everything printed so far.
bool Flush();
// kDone; kFailed, with a message, if the output could not be written (a full disk); kBrokenPipe if
// its reader is gone, the code that a shell reports after SIGPIPE (process.h).
int FinishOutput();

}  // namespace winnow::apps
