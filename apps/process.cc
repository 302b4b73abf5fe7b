#include "process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "console.h"

namespace winnow::apps {
namespace {

constexpr std::string_view kOutOfMemory =
    "out of memory; try a smaller context (-c), cache type (-ctk, -ctv q8_0), budget (--kv-size) "
    "or fewer threads (-t)";

void OpenStandardFiles() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (fcntl(number, F_GETFD) != -1 || errno != EBADF) continue;
    // open() takes the lowest free number, which is this one.
    if (open("/dev/null", O_RDWR) != number) _exit(kFailed);
  }
}

// The functions below may run in a signal handler or without memory: no allocation, no stdio.

void WriteError(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Parses hexadecimal digits and removes them from the text.
uintptr_t ReadAddress(std::string_view& text) {
  uintptr_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<uintptr_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

// The path of the file mapped at `address`, if this line of /proc/self/maps ("begin-end rwxp offset
// dev inode path") is for it; otherwise empty.
std::string_view FileIfMappedAt(std::string_view line, uintptr_t address) {
  const uintptr_t begin = ReadAddress(line);
  if (line.empty() || line.front() != '-') return {};
  line.remove_prefix(1);
  const uintptr_t end = ReadAddress(line);
  if (address < begin || address >= end) return {};
  const size_t path = line.find('/');
  return path == std::string_view::npos ? std::string_view() : line.substr(path);
}

// Calls found(path) for the file mapped at `address`, if there is one.
template <typename Found>
void FindMappedFile(uintptr_t address, const Found& found) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::array<char, 8192> buffer;  // a line has a path and less than a hundred other characters
  size_t n_held = 0;
  for (;;) {
    const ssize_t n = read(maps, buffer.data() + n_held, buffer.size() - n_held);
    if (n <= 0) break;
    std::string_view text(buffer.data(), n_held + static_cast<size_t>(n));
    for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      const std::string_view path = FileIfMappedAt(text.substr(0, end), address);
      if (!path.empty()) {
        found(path);
        break;
      }
      text.remove_prefix(end + 1);
    }
    std::memmove(buffer.data(), text.data(), text.size());
    n_held = text.size() == buffer.size() ? 0 : text.size();
  }
  close(maps);
}

void OnBusError(int signal, siginfo_t* info, void*) {
  // All threads may read the same file: the first one reports, the others wait for the end.
  static std::atomic_flag told;
  while (told.test_and_set()) pause();
  FindMappedFile(reinterpret_cast<uintptr_t>(info->si_addr), [](std::string_view path) {
    WriteError("winnow: error: ");
    WriteError(path);
    WriteError(
        ": read failed: the file was truncated or replaced while it was in use, or the disk "
        "failed; start again with the whole file\n");
    _exit(kFailed);
  });
  // Not caused by a file: restore the default action. Returning repeats the access.
  std::signal(signal, SIG_DFL);
}

[[noreturn]] void OnTerminate() {
  std::string_view reason = "uncaught exception";
  if (const std::exception_ptr problem = std::current_exception()) {
    try {
      std::rethrow_exception(problem);
    } catch (const std::bad_alloc&) {
      reason = kOutOfMemory;
    } catch (const std::system_error&) {
      reason = "the system refused a thread or a lock; try fewer threads (-t)";
    } catch (...) {
    }
  }
  WriteError("winnow: error: ");
  WriteError(reason);
  WriteError("\n");
  _exit(kFailed);
}

// Describes the limit of `ulimit -v`, if there is one.
std::string LimitText() {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return " (the limit of this process, 'ulimit -v', is " +
         HumanBytes(static_cast<int64_t>(limit.rlim_cur)) + ")";
}

}  // namespace

void PrepareProcess() {
  OpenStandardFiles();
  std::set_terminate(OnTerminate);
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);  // the write then fails with an error that is reported
}

void IgnoreBrokenPipes() { std::signal(SIGPIPE, SIG_IGN); }

int RunGuarded(const std::function<int()>& program) {
  try {
    return program();
  } catch (const std::bad_alloc&) {
    ConsoleLog().Error(std::string(kOutOfMemory) + LimitText());
  } catch (const std::system_error& problem) {
    ConsoleLog().Error("the system refused a thread: " + problem.code().message() +
                       "; try fewer threads (-t)" + LimitText());
  } catch (const std::exception& problem) {
    ConsoleLog().Error("internal error: " + std::string(problem.what()));
  }
  return kFailed;
}

}  // namespace winnow::apps
