// Ends the program with a message if the processor lacks the features the binary was built for
// (CMakeLists.txt), before any initializer may use them. Only this file is compiled for every
// x86-64 processor.
#include <unistd.h>

namespace {

__attribute__((constructor(101))) void
RequireProcessor() {  // 101: the earliest priority for programs
#ifdef WINNOW_EXPECTS_SSE4
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes") &&
      __builtin_cpu_supports("pclmul")) {
    return;
  }
  constexpr char kMessage[] =
      "winnow: error: found a processor without SSE4.2, AES or CLMUL, which this build expects; "
      "build winnow with -DCMAKE_CXX_FLAGS=-march=x86-64 (in a virtual machine: ask for the "
      "host's processor)\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  _exit(1);
#endif
}

}  // namespace
