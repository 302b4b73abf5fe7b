#include "base/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace winnow {

int64_t PeakResidentBytes() {
  // Not getrusage first: on Linux its peak outlives exec, so that a process started by a large one
  // reports the large one's memory.
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;  // bytes there, KiB everywhere else
#else
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
#endif
}

int64_t ResidentBytes() {
  std::ifstream pages("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  if (!(pages >> total >> resident)) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "";
}

}  // namespace winnow
