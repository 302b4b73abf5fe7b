#pragma once

#include <termios.h>

#include <atomic>

#include "winnow/session.h"

namespace winnow::apps {

// Handles Ctrl-C (SIGINT), SIGTERM and SIGHUP. The first signal sets the flag, so that a command
// can finish its token, write its results and print its statistics; a second one ends the program
// at once. SIGHUP stays ignored if it was ignored before (nohup).
const std::atomic<bool>& CatchInterrupt();
// The same flag, for the public API.
CancellationToken InterruptToken();
// Exit code of an interrupted command: 128 plus the signal's number, the convention of shells; 130
// after Ctrl-C, 143 after SIGTERM.
int InterruptedCode();
// Whether the program must end (SIGTERM or SIGHUP). After Ctrl-C alone a chat may continue.
bool IsTerminated();
// Clears the flag between turns of a chat, unless the program must end.
void ClearInterrupt();
// Modes that standard input's terminal is reset to when a second signal ends the program.
void RestoreTerminalOnExit(const struct termios& modes);

}  // namespace winnow::apps
