#pragma once

#include <atomic>

namespace winnow::apps {

// Ctrl-C (SIGINT): the first sets the flag, so that a command can finish its token and print its
// statistics; a second one ends the program at once with exit code 130. ClearInterrupt starts anew
// (chat, between turns).
const std::atomic<bool>& CatchInterrupt();
void ClearInterrupt();

}  // namespace winnow::apps
