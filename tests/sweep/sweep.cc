// winnow_sweep [--seed N] [--cases N | --minutes N] [--case SEED]: random sessions, each checked
// for the program's promises about bytes, sizes, refusals and repeatability. Stops at the first
// that fails, and prints the command that repeats it. Exit code: 0 all hold, 1 one fails, 2 misuse.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "sweep_run.h"

namespace {

using winnow::sweep::Case;

constexpr int kCaseTimeoutSeconds = 120;  // seconds a case may take

// The current case, for the signal handler: after a failed assertion, a sanitizer's report or a
// hang.
char g_line[4096];

void OnFatalSignal(int signal) {
  const char* what =
      signal == SIGALRM ? "sweep: a case hangs\n" : "sweep: a case ended the process\n";
  (void)!write(STDERR_FILENO, what, std::strlen(what));
  (void)!write(STDERR_FILENO, g_line, std::strlen(g_line));
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

std::string Line(const Case& c) {
  char hex[32];
  std::snprintf(hex, sizeof(hex), "0x%llx", static_cast<unsigned long long>(c.seed));
  return std::string("sweep: repeat with: winnow_sweep --case ") + hex +
         "\nsweep: " + winnow::sweep::Describe(c) + "\n";
}

// False: the case fails.
bool RunOne(winnow::sweep::Runner& runner, uint64_t seed) {
  const Case c = winnow::sweep::MakeCase(seed);
  const std::string line = Line(c);
  std::snprintf(g_line, sizeof(g_line), "%s", line.c_str());
  alarm(kCaseTimeoutSeconds);
  const std::string problem = runner.Run(c);
  alarm(0);
  if (problem.empty()) return true;
  std::fprintf(stderr, "sweep: %s\n%s", problem.c_str(), line.c_str());
  return false;
}

}  // namespace

// Make sanitizers abort, so that the handler prints the case.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

int main(int argc, char** argv) {
  uint64_t seed = 1;
  int64_t n_cases = 0;
  double minutes = 0;
  bool one = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    char* end = nullptr;
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--seed" || flag == "--case") {
      seed = std::strtoull(value, &end, 0);
      one = flag == "--case";
    } else if (flag == "--cases") {
      n_cases = std::strtoll(value, &end, 10);
    } else if (flag == "--minutes") {
      minutes = std::strtod(value, &end);
    }
    if (end == nullptr || end == value || *end != 0) {
      std::fprintf(stderr,
                   "usage: winnow_sweep [--seed N] [--cases N | --minutes N] [--case SEED]\n");
      return 2;
    }
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM}) {
    std::signal(signal, OnFatalSignal);
  }
  winnow::sweep::Runner runner;
  if (one) return RunOne(runner, seed) ? 0 : 1;
  winnow::Rng seeds(seed);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (n_cases == 0 && minutes == 0) n_cases = 1000;
  while (minutes > 0 ? elapsed() < 60 * minutes : runner.counts().n_cases < n_cases) {
    if (!RunOne(runner, seeds.Next())) return 1;
  }
  const winnow::sweep::Counts& counts = runner.counts();
  std::printf("sweep: seed %llu: %d cases, %d prompts, %d tokens, %d refused, %.0f s: all hold\n",
              static_cast<unsigned long long>(seed), counts.n_cases, counts.n_prompts,
              counts.n_tokens, counts.n_refused, elapsed());
  return 0;
}
