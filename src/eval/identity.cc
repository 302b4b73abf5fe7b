#include "eval/identity.h"

#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "eval/sha256.h"
#include "report/machine.h"

namespace winnow::eval {
namespace {

constexpr int64_t kWhole = int64_t{64} << 20;
constexpr int64_t kHead = int64_t{4} << 20;
constexpr int64_t kPlace = 4096;  // bytes
constexpr int64_t kPlaces = 4096;

void AddBytes(std::ifstream& file, int64_t begin, int64_t n, Sha256& hash) {
  std::vector<char> bytes(static_cast<size_t>(std::min(n, kHead)));
  file.seekg(begin);
  for (int64_t done = 0; done < n && file;) {
    const int64_t now = std::min(n - done, static_cast<int64_t>(bytes.size()));
    file.read(bytes.data(), now);
    hash.Add(std::as_bytes(std::span(bytes).first(static_cast<size_t>(file.gcount()))));
    done += now;
  }
}

}  // namespace

Result<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error{path + ": cannot be read"};
  const int64_t n_bytes = file.tellg();
  Sha256 hash;
  if (n_bytes <= kWhole) {
    AddBytes(file, 0, n_bytes, hash);
  } else {
    hash.Add(std::as_bytes(std::span(&n_bytes, 1)));
    AddBytes(file, 0, kHead, hash);
    for (int64_t i = 0; i < kPlaces; ++i) {
      AddBytes(file, (n_bytes - kPlace) / (kPlaces - 1) * i, kPlace, hash);
    }
  }
  if (!file) return Error{path + ": cannot be read to its end"};
  return (n_bytes <= kWhole ? "sha256:" : "sampled-sha256:") + hash.Hex();
}

report::Record MachineRecord(const std::string& cpu_target) {
  utsname system = {};
  uname(&system);
  return {{"cpu", report::CpuName()},
          {"cores", ThreadPool::DefaultThreads()},
          {"system", std::string(system.sysname) + " " + system.machine},
          {"target", cpu_target}};
}

}  // namespace winnow::eval
