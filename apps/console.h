#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/log.h"

namespace winnow::apps {

// What a command returns to the shell; after a signal, see interrupt.h.
enum ExitCode { kDone = 0, kFailed = 1, kMisused = 2, kBrokenPipe = 141 };

enum class Stream { kOut, kError };
bool IsTerminal(Stream stream);
// Colour is for people: only on a terminal, and never where NO_COLOR is set.
bool UsesColour(Stream stream);

// Columns of the terminal that standard output is; 0: it is none.
size_t TerminalWidth();

// Messages on stderr, warnings and errors marked; they take the place of a progress line. Messages
// below `min_level` are dropped.
class ConsoleLog final : public Log {
 public:
  explicit ConsoleLog(LogLevel min_level = LogLevel::kInfo) : min_level_(min_level) {}
  void set_min_level(LogLevel min_level) { min_level_ = min_level; }
  void Write(LogLevel level, std::string_view message) override;

 private:
  LogLevel min_level_;
};

// One line on stderr that says how far something is and how long it will take. Shown only on a
// terminal and only when it takes more than a moment; gone when Erase is called, something is
// printed, or the object dies. While a line of results is open on the terminal ("[1]4.2,") there is
// none: it would overwrite it, and the results say how far it is.
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
  bool shown_ = false;  // since the last Erase; something printed may have taken it away
  std::chrono::steady_clock::time_point start_, last_;
};

// "1.3 MiB", "512 B".
std::string HumanBytes(int64_t bytes);
// "1.24 B", "260.03 K": counts as people write them about models.
std::string HumanCount(int64_t count);
// "1 h 02 min", "3 min 20 s", "12 s".
std::string HumanDuration(double seconds);
// `text` filled with spaces on the left to `width`.
std::string PadLeft(std::string text, size_t width);

// Writes to stdout. Failed writes are noticed by Flush and FinishOutput.
void Print(std::string_view text);
// Whether stdout took all that was printed.
bool Flush();
// kDone; if stdout could not take what was printed (a full disk) kFailed, with a message;
// kBrokenPipe if nobody reads it any more, as the shell says of a program that SIGPIPE ended
// (process.h).
int FinishOutput();

}  // namespace winnow::apps
