#include "interrupt.h"

#include <unistd.h>

#include <csignal>

namespace winnow::apps {
namespace {

constexpr int kSignalBase = 128;  // exit code of a program ended by signal N is 128 + N

// Global, because a signal handler can access nothing else.
std::atomic<bool> was_interrupted{false};
std::atomic<int> last_signal{SIGINT};
std::atomic<bool> terminated{false};
struct termios terminal_modes = {};
std::atomic<bool> has_terminal_modes{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void OnSignal(int signal) {
  last_signal = signal;
  if (signal != SIGINT) terminated = true;
  if (!was_interrupted.exchange(true)) return;
  if (has_terminal_modes) tcsetattr(STDIN_FILENO, TCSANOW, &terminal_modes);
  _exit(kSignalBase + signal);
}

bool IsIgnored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

const std::atomic<bool>& CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  // Without SA_RESTART a signal also interrupts a read from the keyboard.
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  if (!IsIgnored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
  return was_interrupted;
}

CancellationToken InterruptToken() { return CancellationToken::From(was_interrupted); }

int InterruptedCode() { return kSignalBase + last_signal; }
bool IsTerminated() { return terminated; }
void ClearInterrupt() {
  if (!terminated) was_interrupted = false;
}

void RestoreTerminalOnExit(const struct termios& modes) {
  if (has_terminal_modes) return;
  terminal_modes = modes;
  has_terminal_modes = true;
}

}  // namespace winnow::apps
