#pragma once

#include <termios.h>

#include <atomic>

#include "winnow/session.h"

namespace winnow::apps {

// Ctrl-C (SIGINT), SIGTERM and SIGHUP: the first sets the flag, so that a command can finish its
// token, write what it has and print its statistics; a second one ends the program at once. SIGHUP
// stays ignored where it was (nohup).
const std::atomic<bool>& CatchInterrupt();
// The same flag, for the public API.
CancellationToken InterruptToken();
// What a command that was interrupted returns: 128 and the number of the signal, as shells say it;
// 130 after Ctrl-C, 143 after SIGTERM.
int InterruptedCode();
// Whether the program is to end. After Ctrl-C alone a conversation may go on.
bool IsTerminated();
// Starts anew (chat, between turns), unless the program is to end.
void ClearInterrupt();
// What standard input's terminal is set back to when a second signal ends the program.
void RestoreTerminalOnExit(const struct termios& modes);

}  // namespace winnow::apps
