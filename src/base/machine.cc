#include "base/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {
namespace {

// The number that follows `word` at the beginning of a line of a file.
std::optional<int64_t> NumberIn(const std::string& path, std::string_view word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(word) && line.find_first_of("0123456789") != std::string::npos) {
      return std::stoll(line.substr(line.find_first_of("0123456789")));
    }
  }
  return std::nullopt;
}

// Memory that a control group leaves; nothing if it has no limit.
std::optional<int64_t> AvailableInGroup(const std::string& folder) {
  const auto limit = NumberIn(folder + "/memory.max", "");  // nothing if it is "max": no limit
  const auto used = NumberIn(folder + "/memory.current", "");
  if (!limit || !used) return std::nullopt;
  const int64_t cached = NumberIn(folder + "/memory.stat", "inactive_file ").value_or(0) +
                         NumberIn(folder + "/memory.stat", "active_file ").value_or(0);
  return std::max<int64_t>(0, *limit - *used + cached);
}

}  // namespace

int64_t PeakResidentBytes() {
  // Prefer VmHWM to getrusage: on Linux getrusage's peak survives exec, so a process started by a
  // large one would report the large one's memory.
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;  // bytes on macOS, KiB elsewhere
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

int64_t AvailableMemoryBytes(const std::string& root) {
  const auto kib = NumberIn(root + "/proc/meminfo", "MemAvailable:");
  if (!kib) return 0;
  int64_t bytes = *kib * 1024;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    constexpr std::string_view kVersion2 = "0::";
    if (!line.starts_with(kVersion2)) continue;
    // The limits of all groups above hold too.
    std::string group = line.substr(kVersion2.size());
    while (true) {
      if (group == "/") group.clear();
      const auto left = AvailableInGroup(root + "/sys/fs/cgroup" + group);
      if (left) bytes = std::min(bytes, *left);
      if (group.empty()) break;
      group = group.substr(0, group.starts_with('/') ? group.rfind('/') : 0);
    }
  }
  return bytes;
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
