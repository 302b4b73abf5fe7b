#include "console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/fixed.h"

namespace winnow::apps {
namespace {

// The library's names of options in messages, and the corresponding flags.
constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"`keys` and `values` of bf16", "-ctk bf16 -ctv bf16"},
    {"`context`", "-c"},
    {"`threads`", "threads (-t)"},
    {"`prefill_chunk`", "--prefill-chunk"},
    {"`memory_limit_bytes`", "--memory-limit"},
    {"`max_running`", "-np"},
    {"`chat_template`", "--chat-template NAME"},
    {"`check_tensors`", "--check-tensors"}};

std::string WithFlags(std::string_view message) {
  std::string text(message);
  for (const auto& [option, flag] : kFlags) {
    if (const size_t at = text.find(option); at != std::string::npos) {
      text.replace(at, option.size(), flag);
    }
  }
  return text;
}

constexpr auto kProgressDelay = std::chrono::milliseconds(700);  // until a progress line appears
constexpr auto kRefresh = std::chrono::milliseconds(100);

bool progress_shown = false;  // a progress line to erase before other output
bool line_is_open = false;    // standard output is a terminal with an unfinished line

// Standard output without stdio, which drops its buffer when a signal interrupts a write to a full
// pipe. Here the write is retried: the program reacts to the signal once the reader has taken the
// output, or at once after a second signal (interrupt.h).
class Output {
 public:
  Output() = default;
  ~Output() { Write(); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Add(std::string_view text) {
    waiting_ += text;
    if (is_terminal_ || waiting_.size() >= kBytesAtOnce) Write();
  }
  // False: this or an earlier write failed; nothing more is written.
  bool Write() {
    size_t n_written = 0;
    while (problem_ == 0 && n_written < waiting_.size()) {
      const ssize_t n =
          write(STDOUT_FILENO, waiting_.data() + n_written, waiting_.size() - n_written);
      if (n >= 0) {
        n_written += static_cast<size_t>(n);
      } else if (errno == EAGAIN) {  // another process made the shared pipe non-blocking
        struct pollfd room = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
        poll(&room, 1, -1);
      } else if (errno != EINTR) {
        problem_ = errno;
      }
    }
    waiting_.clear();
    return problem_ == 0;
  }
  bool is_terminal() const { return is_terminal_; }
  bool reader_is_gone() const { return problem_ == EPIPE; }

 private:
  static constexpr size_t kBytesAtOnce = 4096;
  const bool is_terminal_ = IsTerminal(Stream::kOut);
  std::string waiting_;
  int problem_ = 0;  // errno
};

Output& StandardOutput() {
  static Output output;
  return output;
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

bool IsTerminal(Stream stream) {
  return isatty(stream == Stream::kOut ? STDOUT_FILENO : STDERR_FILENO) == 1;
}

bool UsesColour(Stream stream) {
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org: any non-empty value
  return IsTerminal(stream) && (no_colour == nullptr || *no_colour == '\0');
}

size_t TerminalWidth() {
  struct winsize size = {};
  if (!IsTerminal(Stream::kOut) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

void ConsoleLog::Write(LogLevel level, std::string_view message) {
  if (level < min_level_) return;
  std::string line = std::exchange(progress_shown, false) ? "\r\033[K" : "";
  if (level >= LogLevel::kWarning) {
    const bool colour = UsesColour(Stream::kError);
    const bool error = level == LogLevel::kError;
    if (colour) line += error ? "\033[31m" : "\033[33m";
    line += error ? "winnow: error: " : "winnow: warning: ";
    if (colour) line += "\033[0m";
  }
  line += WithFlags(message);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)),
      enabled_(IsTerminal(Stream::kError)),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

ProgressLine::~ProgressLine() { Erase(); }

void ProgressLine::Update(double done) {
  if (!enabled_ || done <= 0 || line_is_open) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < kProgressDelay || (shown_ && now - last_ < kRefresh)) return;
  const double left = Seconds(now - start_) * (1 - done) / done;
  std::fprintf(stderr, "\r\033[K%s %d %%, %s left", what_.c_str(), static_cast<int>(100 * done),
               HumanDuration(left).c_str());
  std::fflush(stderr);
  last_ = now;
  shown_ = progress_shown = true;
}

void ProgressLine::Erase() {
  if (!std::exchange(shown_, false) || !std::exchange(progress_shown, false)) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

std::string PadLeft(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = larger;
  }
  return Fixed(value, value < 10 ? 2 : 1) + " " + unit;
}

std::string HumanCount(int64_t count) {
  const double value = static_cast<double>(count);
  if (value >= 1e9) return Fixed(value / 1e9, 2) + " B";
  if (value >= 1e6) return Fixed(value / 1e6, 2) + " M";
  if (value >= 1e3) return Fixed(value / 1e3, 2) + " K";
  return std::to_string(count);
}

std::string HumanDuration(double seconds) {
  const int64_t whole = std::llround(std::min(seconds, 1e9));
  const auto two_digits = [](int64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole >= 3600) {
    return std::to_string(whole / 3600) + " h " + two_digits(whole / 60 % 60) + " min";
  }
  if (whole >= 60) return std::to_string(whole / 60) + " min " + two_digits(whole % 60) + " s";
  return std::to_string(whole) + " s";
}

void Print(std::string_view text) {
  if (text.empty()) return;
  if (StandardOutput().is_terminal()) {
    if (std::exchange(progress_shown, false)) std::fputs("\r\033[K", stderr);
    line_is_open = !text.ends_with('\n');
  }
  StandardOutput().Add(text);
}

bool Flush() { return StandardOutput().Write(); }

int FinishOutput() {
  if (Flush()) return kDone;
  if (StandardOutput().reader_is_gone()) return kBrokenPipe;
  ConsoleLog().Error("writing to standard output failed");
  return kFailed;
}

}  // namespace winnow::apps
