#include "interrupt.h"

#include <unistd.h>

#include <csignal>

#include "console.h"

namespace winnow::apps {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnInterrupt(int) {
  if (interrupted.exchange(true)) _exit(kInterrupted);
}

}  // namespace

const std::atomic<bool>& CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read from the keyboard ends too.
  sigaction(SIGINT, &action, nullptr);
  return interrupted;
}

void ClearInterrupt() { interrupted = false; }

}  // namespace winnow::apps
