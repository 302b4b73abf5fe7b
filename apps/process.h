#pragma once

#include <functional>

namespace winnow::apps {

// Call first in main. Opens closed descriptors 0 to 2 on /dev/null, so that no file of a command
// gets one of them and receives printed text. If another program truncates a mapped file (SIGBUS),
// or an exception is not caught, the program ends with a message and exit code 1. A write beyond
// the file size limit (ulimit -f) fails like one to a full disk.
void PrepareProcess();

// For commands that save something at their end (run, chat, serve): if the reader of their output
// is gone, the write fails and they end normally, instead of at once by SIGPIPE.
void IgnoreBrokenPipes();

// Runs the program. If the system refuses memory or threads, it ends with a message and exit code
// 1.
int RunGuarded(const std::function<int()>& program);

}  // namespace winnow::apps
