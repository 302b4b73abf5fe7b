#pragma once

#include <functional>

namespace winnow::apps {

// Before anything else: file numbers 0 to 2 are opened (on /dev/null) where they are closed, so
// that no file of a command gets one of them and with it what is printed; a file that another
// program shortens while it is mapped (SIGBUS) ends the program with a message and exit code 1; and
// so does what nobody caught. A write beyond the limit of file sizes (ulimit -f) fails as one to a
// full disk does.
void PrepareProcess();

// For commands that save something at their end (run, chat, serve): where nobody reads what they
// write any more, the write fails and they end in their own time, instead of at once by SIGPIPE.
void IgnoreBrokenPipes();

// Runs the program. Memory or threads that the system refuses end it with a message and exit code
// 1.
int RunGuarded(const std::function<int()>& program);

}  // namespace winnow::apps
